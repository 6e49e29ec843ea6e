"""`answers.toml`: what a learner read from their own logs. Anything may stand in it; each answer is read on its own."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FILE = "answers.toml"
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "rates": ("steps_an_epoch", "linear", "sqrt"),
    "target": ("epoch",),
    "cheapest": ("run",),
    "bytes": ("gradient", "ring"),
    "forecast": ("alpha_s", "beta_bytes_per_s", "compute_s", "samples_per_s"),
    "evidence": ("first", "second", "more_than_spread", "points"),
    "hang": ("rank", "cause"),
    "change": ("before", "after", "key"),
}
"""The tables of the file, in the order of the lines D.*, and their keys."""
_MOST_BYTES = 1 << 16
_MOST_CHARACTERS = 60
_LARGEST, _SMALLEST = 1e30, 1e-30
"""No answer is larger, and none but 0 is smaller: beyond, products and quotients of them would run over or vanish."""
_YES_NO = {"yes": True, "no": False, "true": True, "false": False}


@dataclass(frozen=True)
class Answers:
    """The file as far as it can be read.

    Attributes:
        tables: by question and key, as written; of any type.
        problem: why nothing could be read; empty when it could.
    """

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""

    def given(self, question: str, key: str) -> bool:
        """Whether anything is written there; an empty text is not."""
        value = self._value(question, key)
        return not (value is None or (isinstance(value, str) and not value.strip()))

    def number(self, question: str, key: str) -> float | None:
        """A finite number, also one in quotes, 0 for what is all but 0; None when it is none."""
        value = self._value(question, key)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        if not math.isfinite(number) or abs(number) > _LARGEST:
            return None
        return number if abs(number) >= _SMALLEST else 0.0

    def word(self, question: str, key: str) -> str | None:
        """A text without the space around it; None when it is none, or empty."""
        value = self._value(question, key)
        return value.strip() or None if isinstance(value, str) else None

    def yes(self, question: str, key: str) -> bool | None:
        """Yes or no; None when it is neither."""
        value = self._value(question, key)
        if isinstance(value, bool):
            return value
        return _YES_NO.get(value.strip().lower()) if isinstance(value, str) else None

    def shown(self, question: str, key: str) -> str:
        """What is written there, for a message: short, and without anything that a terminal would obey."""
        if not self.given(question, key):
            return "nothing"
        value = self._value(question, key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
            return "a huge number"
        if isinstance(value, list | dict):
            return "a list" if isinstance(value, list) else "a table"
        text = (
            value.strip() if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
        )
        text = "".join(letter if letter.isprintable() else "?" for letter in text[: _MOST_CHARACTERS + 1])
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."

    def _value(self, question: str, key: str) -> Any:
        return self.tables.get(question, {}).get(key)


def read_answers(content: bytes | None) -> Answers:
    """The answers in a file's content; never fails.

    Args:
        content: of answers.toml; None where there is no such file.
    """
    if content is None:
        return Answers(problem=f"there is no {FILE}")
    if len(content) > _MOST_BYTES:
        return Answers(problem=f"{FILE} is larger than {_MOST_BYTES:,} bytes")
    try:
        parsed = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        return Answers(problem=f"{FILE} is no text in UTF-8")
    except RecursionError:
        return Answers(problem=f"{FILE} is nested too deep")
    except ValueError as error:
        return Answers(problem=f"{FILE} is no TOML: {str(error)[:200]}")
    return Answers({name: value for name, value in parsed.items() if isinstance(value, dict)})
