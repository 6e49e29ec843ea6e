"""Nothing that users can type is undocumented."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import typer.main

from paceline.cli.main import build_app
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


def test_every_exit_code_and_built_in_task_is_listed() -> None:
    """The tables of exit codes and tasks have a row for each."""
    codes = (REFERENCE / "exit-codes.md").read_text()
    tasks = (REFERENCE / "tasks.md").read_text()

    assert [code for code in Exit if f"| {code.value} |" not in codes] == []
    assert [name for name in BUILT_IN if f"| `{name}` |" not in tasks] == []
