"""Flags of a verb in one text, which another verb hands on: read before anything is started."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from paceline.records.errors import PacelineError
from paceline.settings.declare import VerbSettings
from paceline.settings.legal import one_of
from paceline.settings.typed_number import parse_typed


def parse_flags(kind: type[VerbSettings], text: str, flag: str, own: Collection[str]) -> dict[str, Any]:
    """`--optimizer adamw --nesterov` as settings.

    Args:
        kind: settings of the verb whose flags these are.
        text: as a shell would read it.
        flag: behind which it stood, for messages.
        own: settings that may not be handed on, since whoever starts the verb sets them. Nor may settings that do not
            decide the result.

    Raises:
        PacelineError: unknown, without a value, of another type, given twice, or one's own.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}
    types = kind.plain_types()
    legal = {kind.flag(name): name for name, f in fields.items() if f.metadata["recipe"] and name not in own}
    given: dict[str, Any] = {}
    words = _words(text, flag)
    while words:
        word, equals, value = words.pop(0).partition("=")
        negated = word.startswith("--no-") and types.get(legal.get("--" + word[5:], "")) is bool
        word = "--" + word[5:] if negated else word
        if word in {kind.flag(each) for each in fields} - legal.keys():
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
        try:
            given[name] = parse_typed(
                types[name], word, value if equals else words.pop(0), fields[name].metadata["share"]
            )
        except PacelineError as error:
            raise PacelineError(f"{flag}: {error.what}", hint=error.hint) from None
    return given


def as_flags(kind: type[VerbSettings], settings: Mapping[str, Any]) -> list[str]:
    """Settings as they are typed."""
    return [
        word
        for name, value in settings.items()
        for word in ([kind.typed(name, value)] if isinstance(value, bool) else [kind.flag(name), str(value)])
    ]


def _words(text: str, flag: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise PacelineError(f"{flag} cannot be read", why=str(error), hint=f"{flag} '--optimizer adamw'") from error
