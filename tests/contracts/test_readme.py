"""What README shows can be typed: its Python runs, its commands parse, and what they read was made before."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.parser import click_command
from paceline.cli.verbs import Group, find
from paceline.launch.flags import all_flags, flags_before_script

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MADE_BY_READERS = {"RUN", "OTHER", "my_task.py"}


def python_blocks() -> list[str]:
    """The fenced ones."""
    return re.findall(r"^```python\n(.*?)^```", README, flags=re.S | re.M)


def commands() -> list[list[str]]:
    """Of indented blocks and of consoles, in order, without comments; a loop's variables become numbers."""
    lines = re.findall(r"^(?:    +|\$ )(paceline .*)$", README, flags=re.M)
    plain = [re.sub(r"\$\(\(.*?\)\)|\$\w+", "64", line) for line in lines]
    return [shlex.split(line, comments=True) for line in plain]


@pytest.mark.parametrize("code", python_blocks())
def test_python_runs_as_it_stands(code: str) -> None:
    """With its own imports; a task builds a model whose loss can be taken on a batch."""
    space: dict[str, Any] = {}

    exec(compile(code, "README.md", "exec"), space)

    task = space["task"]()
    batch = tuple(column[:8] for column in task.train_data.columns)
    assert task.loss(task.model(), batch).count == 8


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_parse_and_read_only_what_is_there(words: list[str]) -> None:
    """Each flag exists; files stand in the repository, runs were made by an earlier command."""
    path, command = find(words[1:])
    rest = words[1 + len(path) :]
    earlier = commands()[: commands().index(words)]
    made = {each[each.index("--run-dir") + 1] for each in earlier if "--run-dir" in each}

    if path == ["run"]:
        known = {name for flag in all_flags() for name in flag.names}
        assert [flag for flag in flags_before_script(rest) if flag.startswith("-") and flag not in known] == []
    else:
        command = command.itself if isinstance(command, Group) else command
        assert command is not None, f"{words} is a group"
        click_command(command, command.load()).make_context(" ".join(path), list(rest))
    for word in rest:
        if word.endswith(".py") and word not in MADE_BY_READERS:
            assert (ROOT / word).is_file()
        if word.startswith("runs/") and rest[rest.index(word) - 1] != "--run-dir":
            assert any(Path(each).match(word) for each in made)


def test_commands_and_links_were_found() -> None:
    """And every linked file is there."""
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]

    assert len(commands()) > 15
    assert len(python_blocks()) == 1
    assert [link for link in links if not (ROOT / link).exists()] == []
