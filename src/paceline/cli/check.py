"""`paceline check`: read scripts and report faults of their data parallelism."""

from __future__ import annotations

import contextlib
import enum
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.records.errors import Exit, PacelineError

if TYPE_CHECKING:
    from paceline.check.check_files import CheckResult
    from paceline.check.file_check import FileCheck
    from paceline.check.selection import Selection, Settings


class CheckFormat(enum.StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


_RULES, _OUTPUT, _REPAIR = "Rules", "Output", "Repair"
_SHOWN_AFTER_S = 2.0
Words = list[str]


def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Files and folders. [default: .]")
    ] = None,
    select: Annotated[
        Words | None,
        typer.Option(metavar="RULES", help="Only these: codes, prefixes, names, topics.", rich_help_panel=_RULES),
    ] = None,
    ignore: Annotated[Words | None, typer.Option(metavar="RULES", help="Not these.", rich_help_panel=_RULES)] = None,
    exclude: Annotated[
        Words | None, typer.Option(metavar="PATTERN", help="Files and folders to leave out.", rich_help_panel=_RULES)
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Explain a rule with examples, and exit.", rich_help_panel=_RULES),
    ] = None,
    list_rules: Annotated[
        bool, typer.Option("--list-rules", help="List all rules, and exit.", rich_help_panel=_RULES)
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show safe repairs, write nothing.", rich_help_panel=_REPAIR)
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Make safe repairs.", rich_help_panel=_REPAIR)] = False,
    output_format: Annotated[
        CheckFormat,
        typer.Option("--format", metavar="NAME", help="text, json, sarif or github.", rich_help_panel=_OUTPUT),
    ] = CheckFormat.TEXT,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Show the number of findings by rule.", rich_help_panel=_OUTPUT)
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Read all files again.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Read scripts and notebooks and report faults of their data parallelism, without running them.

    Rules follow values through names, functions, classes and local imports. Files without torch are skipped, scripts of
    one process are read and not judged; both are counted.

    Exit codes: 0 no error or warning, 1 an error or a warning, 2 an invalid request, or no file could be read.
    """
    from paceline.check.check_files import check_all, files_below, joined
    from paceline.check.result_cache import ResultCache
    from paceline.check.selection import Selection

    if explain is not None or list_rules:
        sys.stdout.write(_about_rules(explain))
        return
    named = paths or [Path()]
    if missing := [path for path in named if not path.exists()]:
        raise PacelineError(f"{missing[0]} does not exist", hint="name files or folders: paceline check PATH...")
    settings = _settings(named, select, ignore, exclude)
    selection = Selection(settings)
    shown = files_below(named, settings.exclude)
    if not shown:
        raise PacelineError("there are no Python files or notebooks to check", hint="paceline check PATH...")
    cache = None if no_cache else ResultCache(settings.folder, selection.rules)
    with _progress() as progress:
        checks = check_all(list(shown), selection.rules, cache=cache, progress=progress)
    if diff or fix:
        result = _repaired(
            checks, shown, selection, write=fix and not diff, to_stdout=output_format is CheckFormat.TEXT
        )
    else:
        result = joined(checks, shown, selection)
    sys.stdout.write(_printed(result, output_format, statistics))
    if code := _exit_code(result):
        raise typer.Exit(code)


def _about_rules(name: str | None) -> str:
    """The explanation of a rule, or the list of all."""
    from paceline.check.catalog import RULES
    from paceline.check.rule_text import explanation, rule_list
    from paceline.check.selection import code_of
    from paceline.records.errors import choices

    if name is None:
        return rule_list(RULES)
    rule = next((each for each in RULES if each.code == code_of(name)), None)
    if rule is None:
        raise PacelineError(f"{name!r} is no rule", hint=f"one of {choices(each.code for each in RULES)}")
    return explanation(rule)


def _settings(paths: list[Path], select: Words | None, ignore: Words | None, exclude: Words | None) -> Settings:
    """Those of pyproject.toml; each flag replaces its setting."""
    from dataclasses import replace

    from paceline.check.selection import settings_for

    settings = settings_for(paths)
    return replace(
        settings,
        select=settings.select if select is None else _split(select),
        ignore=settings.ignore if ignore is None else _split(ignore),
        exclude=settings.exclude if exclude is None else _split(exclude),
    )


def _split(words: Words) -> tuple[str, ...]:
    """`--select DP001,DP002 --select data` as one list."""
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A counter on stderr, if it is a terminal and checking takes long."""
    if not sys.stderr.isatty():
        yield None
        return
    started, width = time.monotonic(), 0

    def show(done: int, total: int) -> None:
        nonlocal width
        if time.monotonic() - started > _SHOWN_AFTER_S:
            text = f"paceline check: {done:,} of {total:,} files"
            width = max(width, len(text))
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if width:
            sys.stderr.write(f"\r{' ' * width}\r")


def _repaired(
    checks: dict[str, FileCheck], shown: dict[str, str], selection: Selection, *, write: bool, to_stdout: bool
) -> CheckResult:
    """Make or show repairs. Returns what is left."""
    from paceline.check.repairs import repair

    repairs = repair(checks, shown, selection, selection.rules)
    for file in repairs.files:
        if write:
            file.write()
            sys.stderr.write(f"repaired {file.shown}\n")
        else:
            (sys.stdout if to_stdout else sys.stderr).write(file.diff())
    for notebook in repairs.notebooks:
        sys.stderr.write(f"{notebook}: repairs of notebooks are not made, edit its cells\n")
    return repairs.left


def _printed(result: CheckResult, output_format: CheckFormat, statistics: bool) -> str:
    from paceline import __version__
    from paceline.check import text_output

    if statistics and output_format is CheckFormat.TEXT:
        return text_output.statistics(result)
    if output_format is CheckFormat.JSON:
        from paceline.check.json_output import json_of

        return json_of(result, __version__)
    if output_format is CheckFormat.SARIF:
        from paceline.check.sarif import sarif_of

        return sarif_of(result, __version__)
    if output_format is CheckFormat.GITHUB:
        from paceline.check.github_commands import github_of

        return github_of(result)
    return text_output.text_of(result, color=sys.stdout.isatty())


def _exit_code(result: CheckResult) -> Exit:
    if result.files == len(result.unreadable):
        return Exit.USAGE
    return Exit.FAILED if any(each.severity in ("error", "warning") for each in result.findings) else Exit.OK
