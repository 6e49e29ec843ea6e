"""The ladder: what climbs, what is kept, that both sides are searched equally hard, and what the confirmation says."""

import dataclasses
import typing

import pytest
from bench.studies import ladder, minima, regimes
from bench.studies.cells import Study
from bench.studies.rungs import BASELINE, EPOCHS, LARGE, LARGE_START, SCREEN_EPOCHS, SIDES, Rung, changed
from bench.studies.search import Side, as_result, climb, planned

from paceline.landscape.config import LandscapeConfig
from paceline.landscape.config import check as check_landscape
from paceline.records.errors import PacelineError
from paceline.tasks.table import BUILT_IN
from paceline.train.checks import check
from paceline.train.config import TrainConfig
from paceline.train.resolve import recipe, resolve


def record(accuracy, setting="any", seed=0, end="finished", steps=100):
    """A finished cell with one evaluation."""
    evaluations = [] if accuracy is None else [{"step": steps, "metrics": {"accuracy": accuracy}}]
    training = {"end": end, "evaluations": evaluations, "steps": steps}
    return {"setting": setting, "seed": seed, "duration_s": 10.0, "training": training}


def runner(accuracy_of):
    """Runs cells in thought: accuracy (None: diverged) as a function of the flags; also the list of what was run."""
    ran = []

    def run(cells):
        ran.extend(cells)
        values = {cell.name: accuracy_of(cell.flags) for cell in cells}
        return {name: record(value, end="finished" if value else "diverged") for name, value in values.items()}

    return run, ran


def rates(*values, screen=False, must_gain=0.0):
    """A rung that tries some rates."""
    return Rung("rates", "rates", lambda best: {v: changed(best, lr=v) for v in values}, screen, must_gain)


def test_a_rung_keeps_the_best_try():
    """Of three tries the most accurate one becomes the new best, with its flags and cell."""
    run, _ = runner(lambda flags: {"0.1": 0.80, "0.2": 0.90, "0.3": 0.85}[flags["--lr"]])
    side = Side("large", {"--lr": "0.05", "--epochs": "10"})

    climb(side, 1, rates("0.1", "0.2", "0.3"), run)

    assert (side.best["--lr"], side.accuracy, side.holder) == ("0.2", 0.90, "large-r1-rates-0.2_seed0")
    assert side.rungs[0]["kept"] == "0.2"


def test_a_rung_that_gains_nothing_keeps_nothing():
    """Tries that are as good or worse leave the best as it was, and are in the record all the same."""
    run, _ = runner(lambda flags: 0.85)
    side = Side("large", {"--lr": "0.05", "--epochs": "10"}, accuracy=0.85, holder="before")

    climb(side, 2, rates("0.1", "0.2"), run)

    assert (side.best["--lr"], side.holder, side.rungs[0]["kept"]) == ("0.05", "before", None)
    assert [line["accuracy"] for line in side.rungs[0]["tried"]] == [0.85, 0.85]


def test_longer_training_must_be_worth_its_cost():
    """A gain below what the rung asks for is not taken; one above it is."""
    run, _ = runner(lambda flags: {"0.1": 0.8515, "0.2": 0.8525}[flags["--lr"]])
    side = Side("large", {"--lr": "0.05", "--epochs": "10"}, accuracy=0.85)

    climb(side, 1, rates("0.1", must_gain=0.002), run)
    climb(side, 2, rates("0.2", must_gain=0.002), run)

    assert [rung["kept"] for rung in side.rungs] == [None, "0.2"]


def test_a_screen_gives_only_its_best_a_full_run():
    """Screens are short; the best of them is run in full, and only that run can be kept."""
    run, ran = runner(lambda flags: {"0.1": 0.70, "0.2": 0.75, "0.3": None}[flags["--lr"]])
    side = Side("large", {"--lr": "0.05", "--epochs": "10"}, accuracy=0.60)

    climb(side, 3, rates("0.1", "0.2", "0.3", screen=True), run)

    assert [(cell.flags["--lr"], cell.flags["--epochs"]) for cell in ran] == [
        ("0.1", str(SCREEN_EPOCHS)),
        ("0.2", str(SCREEN_EPOCHS)),
        ("0.3", str(SCREEN_EPOCHS)),
        ("0.2", "10"),
    ]
    assert side.best == {"--lr": "0.2", "--epochs": "10"}


def test_a_rung_in_which_everything_diverges_changes_nothing():
    """Diverged screens have no finalist, diverged tries are not kept."""
    run, ran = runner(lambda flags: None)
    side = Side("large", {"--lr": "0.05", "--epochs": "10"}, accuracy=0.5)

    climb(side, 1, rates("0.1", screen=True), run)
    climb(side, 2, rates("0.1"), run)

    assert len(ran) == 2
    assert (side.accuracy, side.best["--lr"]) == (0.5, "0.05")


def test_both_sides_are_searched_equally_hard():
    """The baseline has as many rungs, as many cells in each, and as many screens as the large batch."""
    shape = {}
    for name, (start, rungs) in SIDES.items():
        cells = planned(name, start, rungs)
        per_rung = [sum(f"-r{number}-" in cell.setting for cell in cells) for number in range(1, len(rungs) + 1)]
        shape[name] = (per_rung, [rung.screen for rung in rungs])

    assert shape["large"] == shape["baseline"]


def test_both_sides_share_schedule_augmentation_and_held_out_images():
    """Where both sides start, only the batch differs; both try the same augmentation."""
    starts = [dict(start) for start, _ in SIDES.values()]
    batches = [start.pop("--global-batch") for start in starts]
    augmented = [{rung.name: rung for rung in rungs}["augment"].tries(LARGE_START) for rungs in (LARGE, BASELINE)]

    assert starts[0] == starts[1]
    assert batches == ["4096", "128"]
    assert starts[0]["--holdout"] == "5000"
    assert augmented[0] == augmented[1]


def test_the_ladder_holds_every_remedy_that_it_promises():
    """Three rules, five optimizers with two rates each, ghost and synchronised norms, averages, and longer training."""
    names = {rung.name: list(rung.tries(LARGE_START)) for rung in LARGE}

    assert names["rule"] == ["no-rule", "sqrt", "linear"]
    assert len(names["optimizer"]) == 10
    assert {name.rsplit("-", 1)[0] for name in names["optimizer"]} == {"lars", "lamb", "novograd", "muon", "adamw"}
    assert names["norm"] == ["ghost-32", "ghost-64", "ghost-128", "sync"]
    assert names["average"] == ["ema", "swa"]
    assert names["longer"] == ["2x", "4x"]


def test_every_command_of_the_studies_is_one_that_the_trainer_accepts():
    """Flags are known, values are legal, and the rule reaches as far: by the trainer's own checks, for every cell."""
    trained = [cell for cell in minima.cells([0]) if cell.verb == "train"]
    types = typing.get_type_hints(TrainConfig)

    for cell in (*regimes.settings(), *ladder.planned_search(), *trained):
        given = {"task": cell.target}
        for flag, value in cell.flags.items():
            name = flag.removeprefix("--").replace("-", "_")
            kind = next(t for t in (*typing.get_args(types[name]), types[name]) if t is not type(None))
            given[name] = kind(value)
        config = TrainConfig(**given)

        check(config)
        assert recipe(resolve(config, BUILT_IN["fashion-mnist"].defaults)).optimizer.lr > 0


def test_every_measurement_of_the_studies_is_one_that_landscape_accepts():
    """Measures, flags and values are legal by the verb's own check, so that no hour of training ends in a refusal."""
    types = typing.get_type_hints(LandscapeConfig)
    names = {LandscapeConfig.flag(field.name): field.name for field in dataclasses.fields(LandscapeConfig)}
    looks = [cell for cell in minima.cells([0]) if cell.verb == "landscape"]

    for cell in looks:
        given = {"target": cell.target}
        for flag, value in cell.flags.items():
            kind = next(t for t in (*typing.get_args(types[names[flag]]), types[names[flag]]) if t is not type(None))
            given[names[flag]] = kind(value)
        config = LandscapeConfig(**given)

        check_landscape(config)
        asked = cell.flags["--measure"].split(",")
        assert sorted(config.measures) == sorted(asked)
    assert len(looks) == len(minima.TRAINED) + len(minima.PAIRS)


def test_an_average_keeps_its_horizon_whether_or_not_a_rule_will_scale_it():
    """At 32 times the batch a rule raises the decay to the power of 32, so that both ways come to 0.97."""
    average = {rung.name: rung for rung in LARGE}["average"]

    plain = float(average.tries(LARGE_START)["ema"]["--ema-decay"])
    ruled = float(average.tries(changed(LARGE_START, lr_rule="linear"))["ema"]["--ema-decay"])

    assert plain == pytest.approx(0.97)
    assert ruled**32 == pytest.approx(0.97, abs=1e-4)


def test_the_record_counts_every_cell_and_epoch():
    """Screens count too: the way there is the whole way."""
    run, _ = runner(lambda flags: 0.9)
    side = Side("large", {"--lr": "0.05", "--epochs": str(EPOCHS)})
    climb(side, 1, rates("0.1", "0.2"), run)
    climb(side, 2, rates("0.1", "0.2", "0.3", screen=True), run)

    found = as_result(side)

    assert (found["cells"], found["full_cells"], found["epochs"]) == (6, 3, 3 * EPOCHS + 3 * SCREEN_EPOCHS)


@pytest.mark.parametrize(
    ("cells", "limit"),
    [(ladder.planned_search(), 60), (minima.cells(range(minima.SEEDS)), 60)],
    ids=["search", "minima"],
)
def test_a_study_states_a_cost_within_its_limit(cells, limit):
    """By the stated defaults, the whole table fits into 60 minutes."""
    from bench.studies.pace import estimate_s, pace_of

    total = sum(estimate_s(cell, pace_of([])) for cell in cells)

    assert total / 60 < limit


def found_by_search(epochs="10"):
    """What a search leaves behind."""
    flags = {"--global-batch": "4096", "--epochs": epochs, "--holdout": "5000", "--lr": "0.1"}
    large = {"chosen": flags, "chosen_cell": "large-x_seed0", "cells": 26}
    return {"large": large, "baseline": {**large, "chosen": {**flags, "--global-batch": "128", "--epochs": "10"}}}


def confirmed(large, baseline):
    """A judgement on invented accuracies."""
    cells = ladder.confirm_cells(found_by_search(), range(len(large)))
    values = {"large": iter(large), "baseline": iter(baseline)}
    records = {}
    for cell in cells:
        accuracy = next(values[cell.setting])
        records[cell.name] = record(accuracy, cell.setting, cell.seed, "finished" if accuracy else "diverged")
    return ladder.judge(cells, records)


def test_the_confirmation_uses_fresh_seeds_the_whole_training_set_and_the_test_set():
    """Ten seeds a side that the search has not seen, in turn, without --holdout and otherwise as chosen."""
    cells = ladder.confirm_cells(found_by_search("20"))

    assert len(cells) == 20
    assert {cell.seed for cell in cells} == set(range(100, 110))
    assert all({one.setting for one in cells[i : i + 2]} == {"large", "baseline"} for i in range(0, 20, 2))
    assert all("--holdout" not in cell.flags and cell.flags["--lr"] == "0.1" for cell in cells)
    assert {cell.setting: cell.most_epochs for cell in cells} == {"large": 20.0, "baseline": 10.0}


def test_equal_accuracies_with_little_spread_are_kept():
    """Differences of a hundredth of a point around 0 lie above -0.3 as a whole."""
    large = [0.9200 + 0.0001 * k for k in range(10)]

    found = confirmed(large, large)

    assert found["verdict"] == "kept"
    assert "Accuracy kept: +0.00 points" in ladder.sentence(found)
    assert "n = 10 and 10" in ladder.sentence(found)


def test_a_difference_is_in_points_and_a_clear_loss_is_called_one():
    """1 point less, with the interval that Student's t gives for equal spreads: 18 degrees, 2.1009."""
    baseline = [0.93 + 0.0001 * k for k in range(10)]
    large = [value - 0.01 for value in baseline]

    found = confirmed(large, baseline)

    spread = 0.01 * (55 / 6) ** 0.5 * (2 / 10) ** 0.5  # points: variance of 0..9 is 55/6
    assert found["difference"]["points"] == pytest.approx(-1.0)
    assert found["difference"]["low"] == pytest.approx(-1.0 - 2.10092204 * spread)
    assert found["verdict"] == "lost"
    assert "Accuracy lost: -1.00 points" in ladder.sentence(found)


def test_a_spread_that_reaches_the_margin_shows_nothing():
    """No difference of means, but runs that scatter by points: not shown to be kept."""
    scattered = [0.90, 0.94, 0.91, 0.93, 0.92, 0.90, 0.94, 0.91, 0.93, 0.92]

    found = confirmed(scattered, scattered)

    assert found["verdict"] == "not shown"
    assert ladder.sentence(found).startswith("Not shown to be kept")


def test_a_diverged_run_keeps_nothing():
    """A run without an accuracy is not left out of a mean in silence: there is no interval and no claim."""
    found = confirmed([0.92, None, 0.92], [0.92, 0.92, 0.92])

    assert (found["difference"], found["verdict"]) == (None, "not shown")
    assert "1 of 3 large run(s) diverged" in ladder.sentence(found)


def test_a_confirmation_needs_a_finished_search(tmp_path):
    """Without the search's result there is nothing to confirm, and the message names the command."""
    with pytest.raises(PacelineError, match="no finished search") as caught:
        ladder.found_by_search(Study(ladder.CONFIRM, root=tmp_path))

    assert caught.value.hint == "python -m bench.studies.ladder search"


def test_the_batches_of_the_regimes_differ_in_nothing_but_batch_and_rule():
    """All target cells have the same flags but for batch and rule, and so have all of fixed length."""
    for ending in ("-target", "-10ep"):
        cells = [cell for cell in regimes.settings() if cell.setting.endswith(ending)]
        rest = [{k: v for k, v in c.flags.items() if k not in ("--global-batch", "--lr-rule")} for c in cells]

        assert len(cells) == 9
        assert all(one == rest[0] for one in rest)


def test_the_time_to_a_target_does_not_depend_on_the_time_allowed():
    """Target cells have a constant rate and a warm-up of their own length; nothing in them follows from 60 epochs."""
    cells = [cell for cell in regimes.settings() if cell.setting.endswith("-target")]

    assert {cell.flags["--schedule"] for cell in cells} == {"constant"}
    assert {cell.flags["--epochs"] for cell in cells} == {"60"}
    assert {cell.flags["--target"] for cell in cells} == {"accuracy=0.90"}


def test_a_target_that_was_missed_with_one_seed_is_not_tried_with_the_next():
    """60 epochs for nothing are not repeated; a setting that arrived is, and accuracy cells always are."""
    settings = {cell.setting: cell for cell in regimes.cells([1])}
    missed = {"x": record(0.85, "b8192-none-target")}
    arrived = {"x": record(0.90, "b8192-none-target")}

    assert regimes.hopeless(settings["b8192-none-target"], missed) == "the target was not reached with seed 0"
    assert regimes.hopeless(settings["b8192-none-target"], arrived) is None
    assert regimes.hopeless(settings["b8192-none-10ep"], {"x": record(0.1, "b8192-none-10ep")}) is None


def test_minima_measures_every_run_that_it_trains_and_joins_small_to_large():
    """Each measurement needs a run that the same seed trained before it, and kept."""
    cells = minima.cells([0, 1])

    for number, cell in enumerate(cells):
        kept = {before.keep for before in cells[:number]}
        assert set(cell.needs) <= kept
    joins = [cell for cell in cells if cell.kind == "interpolation"]
    assert [(cell.target, cell.flags["--with"]) for cell in joins[:2]] == [
        ("runs/studies/minima/small_seed0", "runs/studies/minima/large_seed0"),
        ("runs/studies/minima/small_seed0", "runs/studies/minima/large-muon_seed0"),
    ]


@pytest.mark.parametrize(
    ("main", "arguments", "cells"),
    [(regimes.main, [], 54), (minima.main, [], 16), (ladder.main, ["search"], 52)],
    ids=["regimes", "minima", "search"],
)
def test_a_dry_run_states_cells_and_cost_and_runs_nothing(main, arguments, cells, tmp_path, monkeypatch, capsys):
    """Every study prints one line a cell, then what they cost; no trainer is started and nothing is written."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("subprocess.Popen", None)

    main([*arguments, "--dry-run", "--records", str(tmp_path)])

    lines = capsys.readouterr().out.splitlines()
    assert sum("paceline " in line for line in lines[1:-2]) == cells
    assert lines[-2].startswith(f"cost: {cells} of {cells} cell(s) to run, about ")
    assert list(tmp_path.iterdir()) == []
