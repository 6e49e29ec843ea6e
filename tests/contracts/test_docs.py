"""Nothing that users can type is undocumented."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import call
from paceline.cli.parser import click_command
from paceline.cli.verbs import PROGRAM, Command, Group, every
from paceline.launch.flags import OURS
from paceline.records.errors import Exit
from paceline.tasks.table import BUILT_IN, Defaults
from paceline.tasks.task import Task
from paceline_course.assess.rubric import load_rubric

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
VERBS = sorted(PROGRAM.commands)
PAGES = {
    "plan data": "plan-data.md",
    "learn assess": "assess.md",
    "learn certificate": "certificate.md",
    "learn hand-in": "instructor.md",
    "learn instructor": "instructor.md",
}
"""Commands, and groups of them, whose page is not called as their verb."""


def commands() -> Iterator[tuple[str, Command]]:
    """Every command that can be typed, with its name: `train`, `plan data` ..."""
    for path, each in every():
        command = each.itself if isinstance(each, Group) else each
        if command is not None:
            yield " ".join(path), command


def page_of(name: str) -> str:
    """The page of a command: that of the longest group that it belongs to, else of its verb."""
    words = name.split()
    groups = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    return next((PAGES[group] for group in groups if group in PAGES), f"{words[0]}.md")


def parameters_of(command: Command) -> list[Any]:
    """Its options and arguments, as the parser has them."""
    found: list[Any] = click_command(command, command.load()).params
    return found


def flags_of(command: Command) -> list[str]:
    """Its long flags, as they are typed; of a switch the one that turns it on."""
    options = [parameter for parameter in parameters_of(command) if parameter.param_type_name == "option"]
    return [flag for option in options for flag in option.opts if flag.startswith("--")]


def stands_in(flag: str, text: str) -> bool:
    """Whether a text has the flag itself, not only a longer one that begins like it."""
    return re.search(re.escape(flag) + r"(?![\w-])", text) is not None


COMMANDS = dict(commands())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_page(verb: str) -> None:
    """docs/reference/<verb>.md is there and shows how the verb is typed."""
    text = (REFERENCE / f"{verb}.md").read_text()

    assert f"paceline {verb}" in text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_flag_of_every_command_is_explained(name: str) -> None:
    """The page of a command shows how it is typed, and each of its flags."""
    text = (REFERENCE / page_of(name)).read_text()
    flags = [flag for each in OURS for flag in each.names] if name == "run" else flags_of(COMMANDS[name])

    assert f"paceline {name}" in text
    assert flags or name in {"run", "learn doctor", "learn workshop", "learn slides list", "learn assess start"}
    assert [flag for flag in flags if not stands_in(flag, text)] == []


def test_all_commands_are_looked_at_and_a_longer_flag_is_not_taken_for_a_shorter() -> None:
    """Groups are gone into; what the other tests rely on."""
    assert set(COMMANDS) >= {"train", "run", "report", "landscape", "data fetch", "data list", "plan batch"}
    assert set(COMMANDS) >= {"plan cost", "plan data", "plan speed", "plan trends"}
    assert {"--probe", "--probe-seconds"} <= set(flags_of(COMMANDS["plan speed"]))
    assert "--confirm" in flags_of(COMMANDS["plan batch"])
    assert "--with" in flags_of(COMMANDS["landscape"])
    assert "--practice" in flags_of(COMMANDS["learn assess"])
    assert page_of("learn assess start") == page_of("learn assess") == "assess.md"
    assert page_of("learn quiz") == "learn.md"
    assert stands_in("--probe", "`--probe`, which times")
    assert not stands_in("--probe", "`--probe-seconds` and --probes")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_of_commands_says_what_help_says(name: str) -> None:
    """The summary that lists show is the first sentence of the command's own help, and its examples can be typed."""
    command = COMMANDS[name]

    assert command.examples
    assert [each for each in command.examples if not each.startswith(f"paceline {name}")] == []
    if command.own_parser:
        return
    assert (command.load().__doc__ or "").split("\n")[0] == command.summary
    for example in command.examples:
        words = shlex.split(example)[1 + len(name.split()) :]
        click_command(command, command.load()).make_context(name, words)


@pytest.mark.parametrize("width", [40, 80, 110])
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_fits_the_terminal_and_long_help_is_in_groups(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer than the terminal but for single words; from 12 options on each stands in a named group."""
    monkeypatch.setenv("COLUMNS", str(width))

    assert call([*name.split(), "--help"]) == Exit.OK

    lines = capsys.readouterr().out.splitlines()
    as_typed = ("torchrun ", "paceline train fashion-mnist --workers", "--steps 60", "for n in")
    long = [line for line in lines if len(line) > width and len(line.split()) > 1]
    assert [line for line in long if not line.strip().startswith(as_typed)] == []
    groups = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert name == "run" or len(flags_of(COMMANDS[name])) < 12 or len(groups) >= 5


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


def test_every_line_of_the_assessment_is_explained() -> None:
    """Its row has title, points and gate as the rubric has them, and says what it rests on."""
    text = (REFERENCE / "assess.md").read_text()
    rubric = load_rubric()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if row.startswith("| ")]
    judged = [row for row in rows if re.fullmatch(r"[A-D]\.[a-z]+", row[0])]

    assert [row[:4] for row in judged] == [
        [line.id, line.title, f"{line.points:g}", "gate" if line.gate else ""] for line in rubric.lines
    ]
    assert [row[0] for row in judged if not re.search(r"computed|outside|inside|yours", row[4])] == []
    assert f"100 points; {rubric.pass_points} pass, {rubric.merit_points} are with merit" in text


def test_the_limits_of_the_assessment_are_those_of_the_rubric() -> None:
    """The page's table of limits."""
    text = (REFERENCE / "assess.md").read_text()
    limits, task = load_rubric().limits, load_rubric().task
    mib = 1 << 20

    rows = [
        f"| files | {limits.files} of {limits.file_bytes // mib} MiB at most, {limits.total_bytes // mib} MiB in all |",
        f"of 1 to {task.most_workers} workers and {task.most_epochs} epochs at most |",
        f"| memory | {limits.memory_bytes // (mib << 10)} GiB a process |",
        f"| processes | {limits.processes}, threads included |",
        f"| one run of part A | {limits.run_s:g} s;",
        f"| one training of parts B, C, D | {limits.training_s:g} s;",
    ]
    assert [row for row in rows if row not in text] == []
