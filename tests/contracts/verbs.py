"""What holds for each command of a distribution: its documentation, its help, and what its help imports."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import call
from paceline.cli.parser import click_command
from paceline.cli.verbs import PROGRAM, Command, Group, every
from paceline.cli.verify import OPTIONS as VERIFY
from paceline.launch.flags import OURS
from paceline.records.errors import Exit

WIDTHS = [40, 80, 110]
HEAVY = {"torch", "torchvision", "numpy", "scipy", "sklearn", "plotly", "safetensors", "matplotlib", "jinja2"}
NOT_FOR_HELP = HEAVY | {"pydantic", "pydantic_core", "rich", "psutil"}
_HELP = """
import sys
before = set(sys.modules)
from paceline.cli.main import call
code = call(sys.argv[1:])
print("\\n".join(sorted(set(sys.modules) - before)), file=sys.stderr)
sys.exit(code)
"""


def commands(group: Group = PROGRAM, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    """Every command that can be typed, with its name: `train`, `plan data` ..."""
    for words, each in every(group, path):
        command = each.itself if isinstance(each, Group) else each
        if command is not None:
            yield " ".join(words), command


def page_of(name: str, pages: Mapping[str, str]) -> str:
    """The page of a command: that of the longest group that it belongs to, else of its verb."""
    words = name.split()
    groups = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    return next((pages[group] for group in groups if group in pages), f"{words[0]}.md")


def flags_of(command: Command) -> list[str]:
    """Its long flags, as they are typed; of a switch the one that turns it on."""
    parameters: list[Any] = click_command(command, command.load()).params
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    return [flag for option in options for flag in option.opts if flag.startswith("--")]


def stands_in(flag: str, text: str) -> bool:
    """Whether a text has the flag itself, not only a longer one that begins like it."""
    return re.search(re.escape(flag) + r"(?![\w-])", text) is not None


OWN = {
    "run": [flag for each in OURS for flag in each.names],
    "verify": [word.strip(",") for names, _ in VERIFY[:-1] for word in names.split() if word.startswith("-")],
}
"""Flags of commands with a parser of their own."""


def assert_explained(name: str, command: Command, page: Path) -> list[str]:
    """The page shows how the command is typed and each of its flags, which are returned."""
    text = page.read_text()
    flags = OWN[name] if command.own_parser else flags_of(command)
    assert f"paceline {name}" in text
    assert [flag for flag in flags if not stands_in(flag, text)] == []
    return flags


def assert_table_says_what_help_says(name: str, command: Command) -> None:
    """The summary that lists show is the first sentence of the command's own help, and its examples can be typed."""
    assert command.examples
    assert [each for each in command.examples if not each.startswith(f"paceline {name}")] == []
    if command.own_parser:
        return
    assert (command.load().__doc__ or "").split("\n")[0] == command.summary
    for example in command.examples:
        words = shlex.split(example)[1 + len(name.split()) :]
        click_command(command, command.load()).make_context(name, words)


def assert_help_fits(name: str, command: Command, width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """No line is longer than the terminal but for single words; from 12 options on each stands in a named group.

    The width of the terminal is that of the environment's COLUMNS.
    """
    assert call([*name.split(), "--help"]) == Exit.OK

    lines = capsys.readouterr().out.splitlines()
    as_typed = ("torchrun ", "paceline train fashion-mnist --workers", "--steps 60", "for n in")
    long = [line for line in lines if len(line) > width and len(line.split()) > 1]
    assert [line for line in long if not line.strip().startswith(as_typed)] == []
    groups = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert name == "run" or len(flags_of(command)) < 12 or len(groups) >= 5


def modules_of_help(*words: str) -> set[str]:
    """The modules that `paceline WORDS --help` imports, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _HELP, *words, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("Usage: ", "usage: "))
    return set(done.stderr.split())


def target_modules(group: Group = PROGRAM) -> set[str]:
    """The modules that carry out the commands of a group."""
    return {each.target.partition(":")[0] for _, each in every(group) if isinstance(each, Command)}
