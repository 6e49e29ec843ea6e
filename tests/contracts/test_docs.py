"""Nothing that users can type is undocumented."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from paceline.cli.verbs import PROGRAM
from paceline.records.errors import Exit
from paceline.tasks.table import BUILT_IN, Defaults
from paceline.tasks.task import Task
from tests.contracts.verbs import (
    WIDTHS,
    assert_explained,
    assert_help_fits,
    assert_table_says_what_help_says,
    commands,
    flags_of,
    page_of,
    stands_in,
)

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
VERBS = sorted(set(PROGRAM.commands) - {"learn"})
PAGES = {"plan data": "plan-data.md"}
"""Commands, and groups of them, whose page is not called as their verb."""
COMMANDS = dict(commands())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_page(verb: str) -> None:
    """docs/reference/<verb>.md is there and shows how the verb is typed."""
    assert f"paceline {verb}" in (REFERENCE / f"{verb}.md").read_text()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_flag_of_every_command_is_explained(name: str) -> None:
    """The page of a command shows how it is typed, and each of its flags."""
    assert assert_explained(name, COMMANDS[name], REFERENCE / page_of(name, PAGES))


def test_all_commands_are_looked_at_and_a_longer_flag_is_not_taken_for_a_shorter() -> None:
    """Groups are gone into; what the other tests rely on."""
    assert set(COMMANDS) >= {"train", "run", "report", "landscape", "data fetch", "data list", "plan batch"}
    assert set(COMMANDS) >= {"plan cost", "plan data", "plan speed", "plan trends"}
    assert {"--probe", "--probe-seconds"} <= set(flags_of(COMMANDS["plan speed"]))
    assert "--confirm" in flags_of(COMMANDS["plan batch"])
    assert "--with" in flags_of(COMMANDS["landscape"])
    assert page_of("plan data", PAGES) == "plan-data.md"
    assert page_of("plan cost", PAGES) == "plan.md"
    assert stands_in("--probe", "`--probe`, which times")
    assert not stands_in("--probe", "`--probe-seconds` and --probes")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_of_commands_says_what_help_says(name: str) -> None:
    """The summary that lists show is the first sentence of the command's own help, and its examples can be typed."""
    assert_table_says_what_help_says(name, COMMANDS[name])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_fits_the_terminal_and_long_help_is_in_groups(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer than the terminal but for single words; from 12 options on each stands in a named group."""
    monkeypatch.setenv("COLUMNS", str(width))

    assert_help_fits(name, COMMANDS[name], width, capsys)


def test_every_exit_code_and_built_in_task_is_listed() -> None:
    """The tables of exit codes and tasks have a row for each."""
    codes = (REFERENCE / "exit-codes.md").read_text()
    tasks = (REFERENCE / "tasks.md").read_text()

    assert [code for code in Exit if f"| {code.value} |" not in codes] == []
    assert [name for name in BUILT_IN if f"| `{name}` |" not in tasks] == []


def test_every_part_of_a_task_and_what_it_trains_with_is_explained() -> None:
    """Each field of Task stands in the page, and each default with its value."""
    text = (REFERENCE / "tasks.md").read_text()
    defaults = {field.name: getattr(Defaults(), field.name) for field in dataclasses.fields(Defaults)}
    shown = {name: f'`"{each}"`' if isinstance(each, str) else f"{each:g}" for name, each in defaults.items()}

    assert [field.name for field in dataclasses.fields(Task) if not re.search(rf"\b{field.name}\b", text)] == []
    assert [name for name, value in shown.items() if f"| `{name}` | {value} |" not in text] == []
