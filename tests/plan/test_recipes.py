"""The recommended training is the one that was measured, at another batch: its settings, its rate, its warm-up."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from paceline.plan.advise import growth_of_rate
from paceline.plan.recipes import WARM_UP, TrainSettings, of_one, of_runs
from paceline.plan.rows import train_info
from paceline.plan.steps import steps_of_run
from paceline.records.plan_results import BatchPoint
from paceline.stats.noise_scale import NoiseScale, Window
from paceline.studies.train_flags import recipe_flags, used
from tests.plan.runs import training

SETTINGS = TrainSettings(used, recipe_flags)
RESOLVED = {
    "task": "digits", "optimizer": "sgd", "momentum": 0.9, "weight_decay": 5e-4, "schedule": "constant", "lr": 0.1,
    "lr_rule": "none", "base_batch": 64, "warmup": "200", "global_batch": 64, "epochs": 5, "accumulate": 2,
    "holdout": 500, "train_samples": 1000, "augment": "flip", "eval_every": "0.25ep", "target": "accuracy=0.9",
    "seed": 3, "precision": "fp32",
}  # fmt: skip


def run(path: Path, batch: int, steps: float = 100.0, **changes: Any) -> BatchPoint:
    """One that met the target, with `changes` of its settings and the rate that its rule made of them."""
    lr = changes.pop("used_lr", changes.get("lr", 0.1))
    facts = {"lr": lr} | changes.pop("facts", {})
    where = path / f"{batch}-{changes.get('seed', 3)}"
    training(where, micro=batch, config=RESOLVED | {"global_batch": batch} | changes, facts=facts)
    return BatchPoint(run=str(where), batch=batch, seed=3, steps=steps, samples=steps * batch)


def value_of(flags: tuple[str, ...], name: str) -> str | None:
    """What stands behind a flag."""
    return flags[flags.index(name) + 1] if name in flags else None


def test_the_recipe_is_that_of_the_runs(tmp_path: Path) -> None:
    """Everything that they were trained with, but for batch, workers, length and seed."""
    runs = [run(tmp_path, batch) for batch in (64, 256, 1024)]

    found = of_runs(runs, 512, SETTINGS)

    kept = {"--momentum": "0.9", "--weight-decay": "0.0005", "--schedule": "constant", "--optimizer": "sgd"}
    kept |= {"--holdout": "500", "--train-samples": "1000", "--augment": "flip", "--warmup": "200", "--lr": "0.1"}
    kept |= {"--eval-every": "0.25ep"}
    assert {name: value_of(found.flags, name) for name in kept} == kept
    gone = ("--global-batch", "--seed", "--epochs", "--target", "--accumulate", "--lr-rule", "--base-batch")
    assert not set(gone) & set(found.flags)
    assert (found.lr, found.rule, found.warmup) == (pytest.approx(0.1), "that of all runs", "200")


def test_rates_that_were_tuned_are_taken_from_the_runs(tmp_path: Path) -> None:
    """At a batch in between along a straight line in the logarithms; beyond all of them that of the nearest."""
    runs = [run(tmp_path, batch, lr=lr) for batch, lr in ((64, 0.1), (256, 0.2), (1024, 0.8))]

    between, at, beyond = (of_runs(runs, batch, SETTINGS) for batch in (512, 256, 4096))

    assert between.lr == pytest.approx(math.sqrt(0.2 * 0.8))
    assert value_of(between.flags, "--lr") == "0.4"
    assert "next smaller and the next larger" in between.rule
    assert (at.lr, at.rule) == (pytest.approx(0.2), "that of the runs at this batch")
    assert (beyond.lr, value_of(beyond.flags, "--lr")) == (pytest.approx(0.8), "0.8")
    assert "1,024" in beyond.rule


def test_a_rule_of_the_runs_is_kept_as_a_rule(tmp_path: Path) -> None:
    """With its own base rate and batch, so that what else it scales follows; the rate that comes of it is said, also
    beyond the runs."""
    runs = [
        run(tmp_path, batch, lr_rule="sqrt", base_batch=128, lr=0.1, used_lr=0.1 * math.sqrt(batch / 128))
        for batch in (64, 256, 1024)
    ]

    found = of_runs(runs, 4096, SETTINGS)

    assert found.lr == pytest.approx(0.1 * math.sqrt(4096 / 128))
    flags = {"--lr": "0.1", "--lr-rule": "sqrt", "--base-batch": "128"}
    assert {name: value_of(found.flags, name) for name in flags} == flags
    assert "--lr-rule sqrt from a batch of 128" in found.rule


def test_the_warm_up_is_that_of_the_runs_at_the_nearest_batch(tmp_path: Path) -> None:
    """None where they had none: they met the target without."""
    runs = [run(tmp_path, batch, warmup=warmup) for batch, warmup in ((64, "0"), (256, "0"), (1024, "1ep"))]

    assert of_runs(runs, 64, SETTINGS).warmup == "0"
    assert value_of(of_runs(runs, 128, SETTINGS).flags, "--warmup") == "0"
    assert value_of(of_runs(runs, 2048, SETTINGS).flags, "--warmup") == "1ep"


def test_where_the_rate_falls_the_length_of_the_run_counts(tmp_path: Path) -> None:
    """The runs of 100 steps met the target after 80 of them: a quarter longer than what the target takes."""
    constant = [run(tmp_path / "a", batch, steps=80) for batch in (64, 256, 1024)]
    falling = [run(tmp_path / "b", batch, steps=80, schedule="cosine") for batch in (64, 256, 1024)]

    assert of_runs(constant, 256, SETTINGS).stretch is None
    assert of_runs(falling, 256, SETTINGS).stretch == pytest.approx(1.25)


@pytest.mark.parametrize(("optimizer", "growth"), [("sgd", 4), ("sgd", 16), ("adamw", 16)])
def test_from_one_run_the_rate_is_scaled_by_rule(tmp_path: Path, optimizer: str, growth: int) -> None:
    """By the progress of a step, or the root of the growth; a far larger batch is warmed up where the run was not."""
    one = run(tmp_path, 64, optimizer=optimizer, warmup="0")
    noise = Window(1, 100, NoiseScale(100.0, 50.0, 200.0, 1.0, 1.0, 100, 0.9))
    steps = steps_of_run([noise], 64, 100)

    found = of_one(train_info(Path(one.run)), steps, 64 * growth, SETTINGS)

    gain = (100 / 64 + 1) / (100 / (64 * growth) + 1)
    assert found.lr == pytest.approx(0.1 * growth_of_rate(optimizer, gain, growth))
    assert found.warmup == value_of(found.flags, "--warmup") == (WARM_UP if growth == 16 else "0")
    assert bool(found.why_warmup) == (growth == 16)


def test_from_one_run_what_a_rule_had_made_of_its_settings_is_the_base(tmp_path: Path) -> None:
    """The rate and the decay that the run really had; its own warm-up stays."""
    facts = {"rule": {"weight_decay": 0.04, "betas": [0.9, 0.999], "eps": 1e-8, "batch_times": 4.0}}
    one = run(
        tmp_path, 256, optimizer="adamw", momentum=None, weight_decay=0.02, beta1=0.9, beta2=0.999, eps=1e-8,
        lr=0.001, lr_rule="sqrt", used_lr=0.002, facts=facts,
    )  # fmt: skip
    noise = Window(1, 100, NoiseScale(100.0, 50.0, 200.0, 1.0, 1.0, 100, 0.9))

    found = of_one(train_info(Path(one.run)), steps_of_run([noise], 256, 100), 4096, SETTINGS)

    flags = {"--lr": "0.008", "--weight-decay": "0.04", "--warmup": "200", "--lr-rule": None, "--base-batch": None}
    assert {name: value_of(found.flags, name) for name in flags} == flags
