"""Nothing that users can type is undocumented."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import typer.main

from paceline.cli.main import build_app
from paceline.landscape.config import LandscapeConfig
from paceline.plan.batch_config import BatchConfig
from paceline.plan.cost_config import CostConfig
from paceline.plan.data_config import DataConfig
from paceline.plan.speed_config import SpeedConfig
from paceline.records.errors import Exit
from paceline.tasks.table import BUILT_IN
from paceline.train.config import TrainConfig

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
VERBS = sorted(typer.main.get_command(build_app()).commands)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_page(verb: str) -> None:
    """docs/reference/<verb>.md is there and shows how the verb is typed."""
    text = (REFERENCE / f"{verb}.md").read_text()

    assert f"paceline {verb}" in text


def test_every_flag_of_train_is_explained() -> None:
    """Each field of the settings stands in the page as a flag."""
    text = (REFERENCE / "train.md").read_text()
    flags = ["--" + f.name.replace("_", "-") for f in dataclasses.fields(TrainConfig) if f.name != "task"]

    assert [flag for flag in flags if flag not in text] == []


@pytest.mark.parametrize(
    ("config", "page"),
    [
        (SpeedConfig, "plan.md"),
        (BatchConfig, "plan.md"),
        (CostConfig, "plan.md"),
        (DataConfig, "plan-data.md"),
        (LandscapeConfig, "landscape.md"),
    ],
)
def test_every_flag_of_a_plan_and_of_landscape_is_explained(config: type, page: str) -> None:
    """Each field of the settings stands in the page as a flag."""
    text = (REFERENCE / page).read_text()
    positional = ("runs", "targets", "task", "target" if config is LandscapeConfig else "")
    flags = [
        "--" + (f.metadata.get("flag") or f.name).replace("_", "-")
        for f in dataclasses.fields(config)
        if f.name not in positional
    ]

    assert [flag for flag in flags if flag not in text] == []


def test_every_exit_code_and_built_in_task_is_listed() -> None:
    """The tables of exit codes and tasks have a row for each."""
    codes = (REFERENCE / "exit-codes.md").read_text()
    tasks = (REFERENCE / "tasks.md").read_text()

    assert [code for code in Exit if f"| {code.value} |" not in codes] == []
    assert [name for name in BUILT_IN if f"| `{name}` |" not in tasks] == []
