"""Nothing that learners and teachers can type is undocumented, and help imports little."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import paceline_course
from paceline.cli.verbs import Command, Group, every
from paceline_course.assess.rubric import load_rubric
from paceline_course.cli.verbs import LEARN
from tests.contracts.verbs import (
    NOT_FOR_HELP,
    WIDTHS,
    assert_explained,
    assert_help_fits,
    assert_table_says_what_help_says,
    commands,
    modules_of_help,
    page_of,
    target_modules,
)

DOCS = Path(__file__).parents[1] / "docs"
SOURCE = Path(paceline_course.__file__).parent
PAGES = {
    "learn assess": "assess.md",
    "learn certificate": "certificate.md",
    "learn hand-in": "instructor.md",
    "learn instructor": "instructor.md",
}
"""Commands, and groups of them, whose page is not learn.md."""
COMMANDS = dict(commands(LEARN, ("learn",)))
WITHOUT_FLAGS = {"learn doctor", "learn workshop", "learn slides list", "learn assess start"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_flag_of_every_command_is_explained(name: str) -> None:
    """The page of a command shows how it is typed, and each of its flags."""
    assert assert_explained(name, COMMANDS[name], DOCS / page_of(name, PAGES)) or name in WITHOUT_FLAGS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_of_commands_says_what_help_says(name: str) -> None:
    """The summary that lists show is the first sentence of the command's own help, and its examples can be typed."""
    assert_table_says_what_help_says(name, COMMANDS[name])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_fits_the_terminal(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer than the terminal but for single words."""
    monkeypatch.setenv("COLUMNS", str(width))

    assert_help_fits(name, COMMANDS[name], width, capsys)


@pytest.mark.parametrize("words", [path for path, _ in every(LEARN, ("learn",))], ids=" ".join)
def test_help_imports_little_and_only_the_command_that_was_asked_for(words: tuple[str, ...]) -> None:
    """No heavy module, nothing for pydantic, no other command."""
    found = dict(every(LEARN, ("learn",)))[words]
    command = found.itself if isinstance(found, Group) else found

    loaded = modules_of_help(*words)

    assert loaded & NOT_FOR_HELP == set()
    own = {command.target.partition(":")[0]} if isinstance(command, Command) else set()
    assert loaded & target_modules(LEARN) == own


def test_only_the_command_line_of_the_course_draws() -> None:
    """No module outside `cli` imports typer or rich."""
    drawing = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and {(getattr(node, "module", None) or each.name).split(".")[0] for each in node.names} & {"typer", "rich"}
        and path.relative_to(SOURCE).parts[0] != "cli"
    ]

    assert drawing == []


def test_every_line_of_the_assessment_is_explained() -> None:
    """Its row has title, points and gate as the rubric has them, and says what it rests on."""
    text = (DOCS / "assess.md").read_text()
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
    text = (DOCS / "assess.md").read_text()
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
