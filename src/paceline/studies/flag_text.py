"""Flags of `paceline train` that a user hands on in one text, read before anything is started."""

from __future__ import annotations

import dataclasses
import shlex
import typing
from collections.abc import Collection
from typing import Any

import msgspec

from paceline.records.errors import PacelineError
from paceline.train.choices import flag_of, one_of
from paceline.train.config import TrainConfig


def parse_flags(text: str, flag: str, own: Collection[str]) -> dict[str, Any]:
    """`--optimizer adamw --nesterov` as settings.

    Args:
        text: as a shell would read it.
        flag: behind which it stood, for messages.
        own: settings that may not be handed on, since whoever starts the training sets them. Nor may settings of how a
            training is carried out.

    Raises:
        PacelineError: unknown, without a value, of another type, given twice, or one's own.
    """
    fields = {f.name: f for f in dataclasses.fields(TrainConfig)}
    types = typing.get_type_hints(TrainConfig)
    legal = {flag_of(name): name for name, f in fields.items() if f.metadata["recipe"] and name not in own}
    given: dict[str, Any] = {}
    words = _words(text, flag)
    while words:
        word, equals, value = words.pop(0).partition("=")
        negated = word.startswith("--no-") and types.get(legal.get("--" + word[5:], "")) is bool
        word = "--" + word[5:] if negated else word
        if word in {flag_of(each) for each in fields} - legal.keys():
            raise PacelineError(
                f"{flag} cannot hold {word}", why="these trainings have their own", hint="leave it out of the text"
            )
        one_of(flag, word, legal)
        name = legal[word]
        if name in given:
            raise PacelineError(f"{flag} holds {word} twice", hint="leave one of them out")
        if types[name] is bool:
            given[name] = not negated
            continue
        if not equals and not words:
            raise PacelineError(f"{flag}: {word} has no value", hint=f"{fields[name].metadata['help']}")
        given[name] = _converted(value if equals else words.pop(0), types[name], word, flag)
    return given


def as_flags(settings: dict[str, Any]) -> list[str]:
    """Settings as they are typed."""
    flags = []
    for name, value in settings.items():
        if isinstance(value, bool):
            flags.append(flag_of(name) if value else flag_of(name).replace("--", "--no-", 1))
        else:
            flags += [flag_of(name), str(value)]
    return flags


def _words(text: str, flag: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise PacelineError(f"{flag} cannot be read", why=str(error), hint=f"{flag} '--optimizer adamw'") from error


def _converted(text: str, kind: Any, word: str, flag: str) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        names = " or ".join(
            sorted(each.__name__ for each in typing.get_args(kind) or (kind,) if each is not type(None))
        )
        raise PacelineError(f"{flag}: {word} {text} is no {names}", hint="paceline train --help") from None
