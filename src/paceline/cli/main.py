"""`paceline`: finds the command that was typed, and turns failures into messages and exit codes.

Help of the program and of groups comes from a static table. A command's module is imported only when it was asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import paceline
from paceline.cli import signals
from paceline.cli.exits import exit_code_of, leave
from paceline.cli.verbs import Command, Group, find
from paceline.records.errors import Exit, PacelineError

TYPE_CHECKING = False  # typing itself would cost a tenth of the time that help may take
if TYPE_CHECKING:
    from typing import NoReturn

HELP = ("-h", "--help")


def main() -> NoReturn:
    """Run the command line; every way out has a documented exit code (docs/reference/exit-codes.md)."""
    signals.imported()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115  # for as long as the process lives
    leave(call(sys.argv[1:]))


def call(arguments: list[str]) -> int:
    """Run with `arguments` and return the exit code."""
    return exit_code_of(lambda: _dispatch(arguments), arguments[0] if arguments else "")


def _dispatch(arguments: list[str]) -> int:
    path, found = find(arguments)
    rest = arguments[len(path) :]
    name = " ".join(["paceline", *path])
    if isinstance(found, Group):
        if found.itself is None or (rest and not rest[0].startswith("-")):
            return _group(name, found, rest)
        return _run(name, found.itself, rest, found)
    return _run(name, found, rest)


def _group(name: str, group: Group, rest: Sequence[str]) -> int:
    """A group by itself: its help, its version, or what was mistyped."""
    if not rest:
        sys.stderr.write(group_help(name, group))
        return int(Exit.USAGE)
    if rest[0] in HELP:
        sys.stdout.write(group_help(name, group))
        return int(Exit.OK)
    if rest[0] == "--version" and name == "paceline":
        sys.stdout.write(f"{paceline.__version__}\n")
        return int(Exit.OK)
    if rest[0].startswith("-"):
        raise PacelineError(f"No such option: {rest[0]}", hint=f"{name} --help")
    raise PacelineError(f"No such command '{rest[0]}'{_similar(rest[0], group)}", hint=f"{name} --help")


def _similar(word: str, group: Group) -> str:
    import difflib

    near = difflib.get_close_matches(word, list(group.commands))
    return f". Did you mean {' or '.join(repr(each) for each in near)}?" if near else ""


def _run(name: str, command: Command, rest: list[str], group: Group | None = None) -> int:
    if not set(HELP) & set(rest) and "RANK" not in os.environ:  # a rank of torchrun's starts no others
        command.start_server()
    run = command.load()
    if command.own_parser:
        code = run(rest)
        return code if isinstance(code, int) else int(Exit.OK)
    from paceline.cli.parser import parse_and_run

    return parse_and_run(name, command, run, rest, group)


def group_help(name: str, group: Group) -> str:
    """The help of a group, from the table alone."""
    from paceline.cli.help_text import help_text

    options = [("-h, --help", "Show this message and exit.")]
    if name == "paceline":
        options.insert(0, ("--version", "Print the version."))
    rows = [(word, each.summary) for word, each in group.commands.items()]
    usage = f"{name} COMMAND ..."
    return help_text(usage, group.summary, [group.example], [("Commands", rows), ("Options", options)])
