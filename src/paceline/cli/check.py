"""`paceline check`: read scripts and report faults of their data parallelism."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.records.errors import Exit, PacelineError

if TYPE_CHECKING:
    from paceline.check.check_files import CheckResult
    from paceline.check.selection import Settings


class CheckFormat(enum.StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


_RULES, _OUTPUT = "Rules", "Output"
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
    output_format: Annotated[
        CheckFormat,
        typer.Option("--format", metavar="NAME", help="text, json, sarif or github.", rich_help_panel=_OUTPUT),
    ] = CheckFormat.TEXT,
) -> None:
    """Read scripts and notebooks and report faults of their data parallelism, without running them.

    Rules follow values through names, functions, classes and local imports. Files without torch are skipped, scripts of
    one process are read and not judged; both are counted.

    Exit codes: 0 no error or warning, 1 an error or a warning, 2 an invalid request, or no file could be read.
    """
    from paceline.check.check_files import check_all, files_below, joined
    from paceline.check.selection import Selection

    named = paths or [Path()]
    if missing := [path for path in named if not path.exists()]:
        raise PacelineError(f"{missing[0]} does not exist", hint="name files or folders: paceline check PATH...")
    settings = _settings(named, select, ignore, exclude)
    selection = Selection(settings)
    shown = files_below(named, settings.exclude)
    if not shown:
        raise PacelineError("there are no Python files or notebooks to check", hint="paceline check PATH...")
    result = joined(check_all(list(shown), selection.rules), shown, selection)
    sys.stdout.write(_printed(result, output_format))
    if code := _exit_code(result):
        raise typer.Exit(code)


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


def _printed(result: CheckResult, output_format: CheckFormat) -> str:
    from paceline import __version__
    from paceline.check.json_output import json_of
    from paceline.check.text_output import text_of

    if output_format is CheckFormat.JSON:
        return json_of(result, __version__)
    return text_of(result, color=sys.stdout.isatty())


def _exit_code(result: CheckResult) -> Exit:
    if result.files == len(result.unreadable):
        return Exit.USAGE
    return Exit.FAILED if any(each.severity in ("error", "warning") for each in result.findings) else Exit.OK
