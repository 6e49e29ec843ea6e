"""The studies' pages: from records alone, every number with its n, what was cut off shown as such."""

import math
import re

import pytest
from bench.studies import ladder, minima, page_regimes, regimes, report
from bench.studies.cells import Study
from bench.studies.compare import arrivals
from bench.studies.pages import arrival_text, as_svg, hardware, mean_text, median_text
from bench.studies.regimes_rows import regime, rows_of, slopes
from bench.studies.rungs import SIDES
from bench.studies.search import Side, as_result, climb
from bench.studies.trial import as_bytes

from paceline.records.rundir import write_atomic
from tests.bench.invented import minima_records, record


def regime_records():
    """Batch 128 arrives after 400 steps, 512 after 200 (linear rule), 8192 never."""
    return [
        *(record("b0128-none-target", seed, [0.8, 0.85, 0.89, 0.905]) for seed in (0, 1)),
        record("b0512-linear-target", 0, [0.88, 0.91]),
        record("b8192-none-target", 0, [0.5, 0.6, 0.7], steps_each=8),
        record("b8192-linear-target", 0, [], end="diverged"),
        *(record("b0128-none-10ep", seed, [0.9, value]) for seed, value in enumerate((0.92, 0.925, 0.93))),
        record("b8192-none-10ep", 0, [0.7, 0.75]),
    ]


def store(root, study, records):
    """Write records as the harness does."""
    for one in records:
        write_atomic(root / study / "cells" / f"{one['setting']}_seed{one['seed']}.json", as_bytes(one))


def test_the_regimes_page_shows_what_was_cut_off_as_larger_than_its_bound():
    """8192 was given up after 24 steps, so its steps to the target stand as > 24, and the diverged one as diverged."""
    text = page_regimes.render(regime_records()).text

    assert "| 128 | either | 2 of 2 | 400 (400 to 400) | 4,000 (4,000 to 4,000) | 8 (8 to 8) | 90.50 % |" in text
    assert "| 512 | linear rule | 1 of 1 | 200 |" in text
    assert "| 8192 | no rule | 0 of 1 | > 24 | > 3,000 | > 6 | 70.00 % |" in text
    assert "| 8192 | linear rule | 0 of 1 | diverged | diverged | diverged | none |" in text


def test_the_regimes_page_gives_each_accuracy_its_n_and_interval():
    """Three seeds have Student's interval (92.5, standard error 0.2887, t 4.3027); one has none and says so."""
    text = page_regimes.render(regime_records()).text

    assert "92.50 [91.26, 93.74], n = 3" in text
    assert "75.00, n = 1 (no interval)" in text


def steps_to(setting, seed, steps, every=10, **more):
    """A run that arrives at `steps`, evaluated every `every` of them."""
    return record(setting, seed, [0.5] * (steps // every - 1) + [0.9], steps_each=every, **more)


def test_a_slope_is_as_uncertain_as_the_evaluations_allow():
    """128 arrives in (300, 400], 512 in (100, 200]: log(200/400), from log(100/400) to log(200/300), over log 4."""
    text = page_regimes.render(regime_records()).text

    assert (
        "linear rule: 128 to 512: -0.50, range -1.00 to -0.29, n = 2 and 1 (between near perfect scaling and "
        "diminishing returns); without a median: 32: not run, 2048: not run, 8192: reached by 0 of 1, 1 diverged\n"
    ) in text
    assert "512 to 8192" not in text


def test_the_range_of_a_slope_holds_the_runs_of_all_seeds():
    """128 arrives in (390, 400] and (590, 600], 512 in (190, 200]: from log(190/600) to log(200/390) over log 4."""
    rows = rows_of(
        [
            steps_to("b0128-none-target", 0, 400),
            steps_to("b0128-none-target", 1, 600),
            steps_to("b0512-none-target", 0, 200),
        ],
        "target",
    )

    (found,) = slopes(rows, "none")

    expected = [math.log(ratio) / math.log(4) for ratio in (200 / 600, 190 / 600, 200 / 390)]
    assert [found.value, found.low, found.high] == pytest.approx(expected)
    assert found.regime == "between near perfect scaling and diminishing returns"


def test_a_regime_is_named_where_the_whole_range_lies_within_it():
    """From (390, 400] to (190, 200] the slope lies between -0.54 and -0.48, whichever way: diminishing returns."""
    records = [steps_to("b0128-none-target", 0, 400), steps_to("b0512-none-target", 0, 200)]

    text = page_regimes.render(records).text

    assert "no rule: 128 to 512: -0.50, range -0.54 to -0.48, n = 1 and 1 (diminishing returns); without" in text
    assert [regime(slope) for slope in (-0.95, -0.8, -0.5, -0.2, -0.1)] == [
        "near perfect scaling",
        "diminishing returns",
        "diminishing returns",
        "diminishing returns",
        "little or no gain",
    ]


def test_a_seed_that_did_not_arrive_leaves_the_range_open():
    """Two of three arrived at 512, so there is a median, but how late the third would be nobody knows."""
    records = [
        steps_to("b0128-none-target", 0, 400),
        steps_to("b0512-none-target", 0, 200),
        steps_to("b0512-none-target", 1, 200),
        record("b0512-none-target", 2, [0.5] * 90, steps_each=10),
    ]

    text = page_regimes.render(records).text

    assert "-0.50, range -0.54 to unknown, n = 1 and 3 (between diminishing returns and little or no gain)" in text


def test_a_batch_in_the_middle_that_was_not_reached_is_named():
    """With 512 cut off, the slope goes from 128 to 2048 and the line says what became of 512, for both rules."""
    records = [
        steps_to("b0128-none-target", 0, 400),
        record("b0512-none-target", 0, [0.5, 0.6]),
        steps_to("b2048-none-target", 0, 100),
    ]

    text = page_regimes.render(records).text

    assert "no rule: 128 to 2048: -0.50" in text
    assert "without a median: 32: not run, 512: reached by 0 of 1, 8192: not run\n" in text
    assert (
        "- linear rule: no slope, since fewer than two batches have a median; without a median: 32: not run, 512: not "
        "run, 2048: not run, 8192: not run\n"
    ) in text


def test_a_diverged_first_seed_gives_no_column_of_the_accuracy_table():
    """Seed 0 was lost after 7 steps and 2 seconds: steps, loss and seconds are those of the runs that ended."""
    records = [
        record("b0512-linear-10ep", 0, [0.1], steps_each=7, end="diverged", train_loss=1e29),
        record("b0512-linear-10ep", 1, [0.8, 0.90], steps_each=50, train_loss=0.5),
        record("b0512-linear-10ep", 2, [0.8, 0.91], steps_each=50, train_loss=0.7),
        record("b2048-none-10ep", 0, [0.1], steps_each=7, end="diverged"),
    ]

    text = page_regimes.render(records).text

    assert (
        "| 512 | linear rule | 100 | 90.50 (90.00 to 91.00), n = 2; 1 diverged | 0.6 (0.5 to 0.7), n = 2 | "
        "4 (4 to 4), n = 2 |"
    ) in text
    assert "| 2048 | no rule | none | none; 1 diverged | none | none |" in text


def test_a_study_whose_targets_all_diverged_still_has_a_page():
    """There is no step to draw, and the page says what happened."""
    page = page_regimes.render([record("b8192-linear-target", 0, [], end="diverged")])

    assert "| 8192 | linear rule | 0 of 1 | diverged |" in page.text
    assert as_svg(page.figures["regimes-steps.svg"]).startswith(b"<?xml")


def test_a_half_finished_study_says_so():
    """Of 54 planned cells 9 are there; the two futile targets of 8192 lack two seeds each; rows not run are marked."""
    text = page_regimes.render(regime_records()).text

    assert "9 of 54 planned cells are measured (a cell is a setting with a seed; 3 seeds a setting)" in text
    assert "a target that one seed has missed is not tried again" in text
    assert "no cell is begun that would take the study past its budget" in text
    assert "Of the 45 missing, 4 are left out by the first rule and 41 were not run" in text
    assert "| 2048 | linear rule | not run | not run | not run | not run | not run |" in text
    assert "| 32 | no rule | not run | not run | not run | not run |\n" in text


def test_a_finished_study_misses_nothing():
    """With every planned cell there, nothing is said to be missing or not run."""
    records = [
        record(cell.setting, cell.seed, [0.5, 0.91] if cell.setting.endswith("target") else [0.92])
        for cell in regimes.cells(range(regimes.SEEDS))
    ]

    text = page_regimes.render(records).text

    assert "54 of 54 planned cells" in text
    assert "missing" not in text
    assert "not run" not in text


def test_a_target_is_given_up_for_the_seed_that_missed_it():
    """Seed 0 arrived and seed 1 did not: the reason names seed 1."""
    done = {
        "a": record("b8192-none-target", 0, [0.91]),
        "b": record("b8192-none-target", 1, [0.7]),
    }
    cell = next(cell for cell in regimes.settings() if cell.setting == "b8192-none-target")

    assert regimes.hopeless(cell, done) == "the target was not reached with seed 1"


def test_seconds_that_were_measured_on_a_busy_machine_are_marked():
    """A load of 3.5 before a run marks the seconds of its row, one of 0.5 does not; a diverged run has no seconds."""
    records = [
        steps_to("b0128-none-target", 0, 20, load=0.5),
        steps_to("b0512-none-target", 0, 20, load=3.5),
        record("b8192-linear-target", 0, [], end="diverged", load=3.0),
        record("b0128-none-10ep", 0, [0.9], load=2.0),
    ]

    text = page_regimes.render(records).text

    assert "| 128 | either | 1 of 1 | 20 | 2,000 | 4 | 90.00 % |" in text
    assert "| 512 | no rule | 1 of 1 | 20 | 2,000 | 4 † | 90.00 % |" in text
    assert "| 8192 | linear rule | 0 of 1 | diverged | diverged | diverged | none |" in text
    assert "90.00, n = 1 (no interval) | 0.25, n = 1 | 2, n = 1 † |" in text
    assert "†: some of these runs began at a load average above 1" in text
    assert "0.5 to 3.5; above 1 before 3 of 4" in text


def test_the_load_of_the_machine_is_never_made_up():
    """What was not recorded is said so, and a quiet machine gets its range and no warning."""
    quiet = [record("a", 0, [0.9], load=0.1), record("a", 1, [0.9], load=0.9)]
    silent = [record("a", 0, [0.9])]

    assert hardware(quiet)[-1].endswith(": 0.1 to 0.9.")
    assert "above 1" not in hardware(quiet)[-1]
    assert "not recorded, so nothing is known" in hardware(silent)[-1]
    assert hardware([*quiet, *silent])[-1].endswith("0.1 to 0.9; not recorded for 1.")


def test_every_page_says_on_what_it_was_measured_and_what_it_does_not_show():
    """Hardware, software, commit, cost and limits are on the page."""
    text = page_regimes.render(regime_records()).text

    assert "An Invented CPU, 2 cores" in text
    assert "torch 2.x" in text
    assert "commit 0123456789" in text
    assert "Cost: 9 cell(s), 9.0 min in all; 2026-01-02." in text
    assert "## What this does not show" in text


def invented_search(tmp_path):
    """A search and a confirmation whose accuracies follow from the flags, through the real code."""
    records = {}

    def run(cells):
        found = {}
        for cell in cells:
            value = 0.80 + 0.01 * len(set(cell.flags.items()) - set(SIDES["large"][0].items()))
            end = "diverged" if cell.flags["--lr-rule"] == "linear" and cell.flags["--warmup"] == "0" else "finished"
            found[cell.name] = record(cell.setting, cell.seed, [] if end == "diverged" else [value], end=end)
        records.update(found)
        return found

    sides = {name: Side(name, dict(start)) for name, (start, _) in SIDES.items()}
    for name, (_, rungs) in SIDES.items():
        for number, rung in enumerate(rungs, start=1):
            climb(sides[name], number, rung, run)
    search = {name: as_result(side) for name, side in sides.items()}
    store(tmp_path, ladder.SEARCH, records.values())
    write_atomic(tmp_path / ladder.SEARCH / "result.json", as_bytes(search))
    return search


def invented_confirmation(tmp_path, search, monkeypatch):
    """Ten seeds a side: the large batch half a point behind."""

    def measure(study, cell, program, data_dir):
        value = (0.925 if cell.setting == "baseline" else 0.920) + 0.0001 * (cell.seed % 10)
        return {**record(cell.setting, cell.seed, [value]), "command": cell.command}

    monkeypatch.setattr("bench.studies.cells.measure", measure)
    study = Study(ladder.CONFIRM, root=tmp_path, tell=lambda line: None)
    write_atomic(study.folder / "result.json", as_bytes(ladder.confirm(study, search)))


def test_the_ladder_page_before_the_confirmation_claims_nothing(tmp_path):
    """A search alone is shown as such, with every cell that was tried and those that diverged."""
    invented_search(tmp_path)

    page = report.pages(tmp_path)[0]

    assert "**Not confirmed yet.**" in page.text
    assert "linear diverged" in page.text
    assert all(f"{name}-" in page.text for name in ("lars", "lamb", "novograd", "muon", "adamw"))
    assert "Accuracy kept" not in page.text
    assert set(page.figures) == {"ladder-search.svg"}


def test_the_ladder_page_leads_with_the_confirmed_difference(tmp_path, monkeypatch):
    """The sentence with the interval comes first, with n, the checks of the method and both commands."""
    search = invented_search(tmp_path)
    invented_confirmation(tmp_path, search, monkeypatch)

    page = report.pages(tmp_path)[0]

    assert "**Accuracy lost: -0.50 points [-0.53, -0.47] (95 %, Welch's t, n = 10 and 10)" in page.text
    assert page.text.index("Accuracy lost") < page.text.index("## Confirmation") < page.text.index("## The way there")
    assert "Shapiro" in page.text
    assert "paceline train fashion-mnist --global-batch 4096" in page.text
    assert "times the epochs of the baseline" in page.text
    assert set(page.figures) == {"ladder-search.svg", "ladder-confirm.svg"}


def test_pages_are_written_from_records_and_the_same_records_give_the_same_files(tmp_path):
    """Two renderings agree to the byte, figures that a page names exist, and nothing is written without records."""
    root, docs = tmp_path / "records", tmp_path / "docs"
    assert report.pages(root) == []
    store(root, "regimes", regime_records())
    store(root, minima.NAME, minima_records())

    written = report.write(report.pages(root), docs)
    first = {path.name: path.read_bytes() for path in written}
    again = {path.name: path.read_bytes() for path in report.write(report.pages(root), docs)}

    assert first == again
    for path in docs.glob("*.md"):
        for name in re.findall(r"\]\(([^)]+\.svg)\)", path.read_text()):
            assert (docs / name).read_bytes().startswith(b"<?xml")
    assert {"regimes.md", "minima.md"} <= set(first)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([90.0], "90.00, n = 1 (no interval)"),
        ([90.0, 91.0], "90.50 (90.00 to 91.00), n = 2"),
        ([90.0, 91.0, 92.0], "91.00 [88.52, 93.48], n = 3"),
        ([], "none"),
    ],
)
def test_a_mean_never_stands_without_its_n(values, text):
    """One value has no interval, two have a range, three have Student's interval (1 x 4.3027 / sqrt 3)."""
    assert mean_text(values) == text


def test_a_median_shows_its_range_and_n():
    """Of 1, 3 and 2 it is 2."""
    assert median_text([1.0, 3.0, 2.0]) == "2 (1 to 3), n = 3"


@pytest.mark.parametrize(
    ("values", "given_up", "text"),
    [
        ([400.0], [None], "400"),
        ([400.0, 300.0], [None, None], "400 (300 to 400)"),
        ([400.0, None, 300.0], [None, 900.0, None], "400 (300 to 400; 1 of 3 cut off at 900)"),
        ([400.0, None, 300.0], [None, None, None], "400 (300 to 400; 1 of 3 diverged)"),
        ([None, 300.0], [900.0, None], "> 900 (one arrived at 300; 1 of 2 cut off at 900)"),
        ([None, 300.0], [None, None], "1 of 2 diverged (one arrived at 300)"),
        ([None, 300.0, None], [None, None, None], "2 of 3 diverged (one arrived at 300)"),
        (
            [None, 300.0, None],
            [900.0, None, None],
            "> 900 (one arrived at 300; 1 of 3 cut off at 900; 1 of 3 diverged)",
        ),
        ([None, None], [900.0, None], "1 of 2 diverged (1 of 2 cut off at 900)"),
        ([None, None], [900.0, 800.0], "> 800"),
        ([None], [900.0], "> 900"),
        ([None], [None], "diverged"),
        ([None, None], [None, None], "diverged"),
    ],
)
def test_arrivals_tell_apart_what_arrived_was_cut_off_or_diverged(values, given_up, text):
    """A value that arrived is never lost, a run that was cut off is no diverged one, and neither ends the range."""
    assert arrival_text(arrivals(values, given_up)) == text
