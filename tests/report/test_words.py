"""The first line of a run, where a rule has made the rate."""

from __future__ import annotations

import msgspec

from paceline.records.schema import SCHEMA, RunInfo
from paceline.report import words


def info(config: dict[str, object], facts: dict[str, object]) -> RunInfo:
    """A run with these settings."""
    return RunInfo(
        schema=SCHEMA,
        verb="train",
        name="t",
        command=["paceline"],
        started_at="2026-01-01T00:00:00+00:00",
        versions={},
        config=config,
        facts=facts,
    )


def test_the_first_line_says_which_rule_made_the_rate_from_what() -> None:
    """The rate that is used, and the base that was stated."""
    run = info(
        {"lr": 0.05, "base_batch": 128, "schedule": "linear"},
        {"lr": 1.6, "warmup_steps": 30, "rule": {"name": "linear", "batch_times": 32.0, "lr": 1.6}},
    )

    assert words.learning_rate(run) == (
        "learning rate 1.6 (linear rule: 32 × batch, 0.05 at 128), linear after 30 warm-up steps"
    )


def test_without_a_rule_the_rate_stands_alone() -> None:
    """Also for runs of earlier versions, which have it in their settings only."""
    assert words.learning_rate(info({"lr": 0.05, "schedule": "cosine"}, {"lr": 0.05})) == "learning rate 0.05, cosine"
    assert words.learning_rate(info({"lr": 0.05}, {})) == "learning rate 0.05"


def test_a_damaged_rule_is_no_reason_to_fail() -> None:
    """run.json may have been written by anybody; what is shown is what is there."""
    for rule in ("linear", {"name": "linear"}, {"name": "x", "batch_times": None}, {"batch_times": "many"}):
        line = words.learning_rate(
            msgspec.structs.replace(info({"lr": 0.05}, {"lr": 0.1}), facts={"lr": 0.1, "rule": rule})
        )
        assert line is not None
        assert line.startswith("learning rate 0.1")


def test_only_optimizers_with_a_fused_kernel_are_called_fused() -> None:
    """Those of the trainer's table that torch has in one pass over a tensor; of the others there is nothing to say."""
    said = {name: words.fast_line(info({"optimizer": name}, {})) for name in ("sgd", "adamw", "lars", "lamb", "muon")}

    assert said == {"sgd": "fused sgd", "adamw": "fused adamw", "lars": "", "lamb": "", "muon": ""}
