"""Command-line options made from a dataclass, so that flags, records and defaults cannot drift apart."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from paceline.records.typed_number import parse_number, parse_share, parse_whole

_VALUES = {int: "N", float: "X"}
"""What help calls a value without a name of its own."""


def command_from(
    config: type, positional: str, run: Callable[[dict[str, Any]], None], text: str
) -> Callable[..., None]:
    """A function whose signature typer reads as the fields of `config`.

    Every option is None until it is given, so that `run` can tell what the user asked for from what is a default.

    Args:
        config: a dataclass whose fields have `metadata["help"]`; `metadata["group"]` is where help lists the flag,
            `metadata["value"]` what it calls the value, and `metadata["flag"]` names a flag that is not called as its
            field, for instance because that word means something in Python.
        positional: the field that is an argument; it may be left out.
        run: gets what was given, by field name.
        text: the command's help.
    """
    hints = typing.get_type_hints(config)
    parameters = []
    for field in dataclasses.fields(config):
        kind = _plain_type(hints[field.name])
        if field.name == positional:
            info: Any = typer.Argument(metavar=field.name.upper(), help=field.metadata["help"])
        else:
            info = _option(_flag(field.metadata.get("flag") or field.name, kind), kind, field)
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
            )
        )

    def command(**values: Any) -> None:
        run({name: value for name, value in values.items() if value is not None})

    command.__doc__ = text
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _option(flag: str, kind: Any, field: dataclasses.Field[Any]) -> Any:
    """An option; a number may be typed as 70B or 7e10, a share (`metadata["share"]`) as 0.9 or 90%."""
    shown: dict[str, Any] = {
        "help": _help(field),
        "show_default": False,
        "rich_help_panel": field.metadata.get("group"),
        "metavar": None if kind is bool else field.metadata.get("value") or _VALUES.get(kind, "TEXT"),
    }
    if kind not in (int, float):
        return typer.Option(flag, **shown)
    parse = parse_share if field.metadata.get("share") else parse_whole if kind is int else parse_number
    return typer.Option(flag, parser=functools.partial(parse, flag), **shown)


def _plain_type(hint: Any) -> Any:
    """`int` of `int | None`."""
    if isinstance(hint, types.UnionType):
        return next(arm for arm in typing.get_args(hint) if arm is not type(None))
    return hint


def _flag(name: str, kind: Any) -> str:
    flag = "--" + name.replace("_", "-")
    return f"{flag}/--no-{name.replace('_', '-')}" if kind is bool else flag


def _help(field: dataclasses.Field[Any]) -> str:
    text: str = field.metadata["help"]
    if field.default is None or field.default is False:
        return text
    return (
        f"{text} [default: {field.default:g}]"
        if isinstance(field.default, float)
        else f"{text} [default: {field.default}]"
    )
