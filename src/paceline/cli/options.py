"""Command-line options made from a verb's settings, so that flags, records and defaults cannot drift apart."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from paceline.cli import signals
from paceline.settings.declare import VerbSettings, is_argument
from paceline.settings.typed_number import parse_typed

_VALUES = {int: "N", float: "X"}
"""What help calls a value without a name of its own."""


def command_from(
    kind: type[VerbSettings], run: Callable[[dict[str, Any]], int | None], text: str
) -> Callable[..., int | None]:
    """A function whose signature typer reads as the fields of `kind`.

    Every option is None until it is given, so that `run` can tell what the user asked for from what is a default. An
    empty list of arguments is not given.

    Args:
        kind: the settings. Their argument may be left out.
        run: gets what was given, by field name, and returns the exit code; None for 0.
        text: the command's help.
    """
    types = kind.plain_types()
    groups = {name: group for group, names in kind.groups().items() for name in names}
    parameters = []
    for field in dataclasses.fields(kind):
        plain, flag = types[field.name], kind.flag(field.name)
        if is_argument(field):
            info: Any = typer.Argument(metavar=flag, help=field.metadata["help"])
        else:
            info = _option(flag, plain, field, groups[field.name])
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[plain | None, info]
            )
        )

    def command(**values: Any) -> int | None:
        try:
            return run({name: value for name, value in values.items() if value not in (None, [])})
        except KeyboardInterrupt as stop:  # typer would make a silent 130 of it, whatever the signal was
            sys.stderr.write(f"\n{signals.words(stop)}\n")
            return signals.exit_code(stop)

    command.__doc__ = text
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _option(flag: str, kind: Any, field: dataclasses.Field[Any], group: str) -> Any:
    """An option; a number may be typed as 70B or 7e10, a share as 0.9 or 90%."""
    shown: dict[str, Any] = {
        "help": _help(field),
        "show_default": False,
        "rich_help_panel": group,
        "metavar": None if kind is bool else field.metadata["value"] or _VALUES.get(kind, "TEXT"),
    }
    if kind is bool:
        flag = f"{flag}/{flag.replace('--', '--no-', 1)}"
    if kind in (int, float):
        shown["parser"] = functools.partial(parse_typed, kind, flag, share=field.metadata["share"])
    return typer.Option(flag, **shown)


def _help(field: dataclasses.Field[Any]) -> str:
    text: str = field.metadata["help"]
    if field.default is None or field.default is False:
        return text
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{text} [default: {default}]"
