"""Numbers as people type them: 70B, 1.4T, 500M, 64k, 7e10, 70_000_000; the same for every numeric flag."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from paceline.records.errors import PacelineError

SUFFIXES = {"k": 3, "m": 6, "b": 9, "g": 9, "t": 12, "%": -2}
"""Powers of ten, in either case: thousand, million, billion (also giga), trillion; percent."""
_NUMBER = re.compile(
    r"([+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:e[+-]?\d{1,3})?) ?([kmbgt%]?)", re.IGNORECASE | re.ASCII
)
_MOST_WHOLE = 2**63 - 1
_EXAMPLES = {"number": "70B or 7e10", "whole number": "64, 64k or 1e3", "share": "0.9 or 90%"}


def parse_typed(kind: type, flag: str, text: str, share: bool = False) -> Any:
    """What was typed for `flag`, as a value of `kind`; other kinds than int and float keep the text.

    Raises:
        PacelineError: it is no such number.
    """
    if kind is int:
        return parse_whole(flag, text)
    if kind is float:
        return parse_share(flag, text) if share else parse_number(flag, text)
    return text


def parse_number(flag: str, text: str) -> float:
    """The finite number that was typed for `flag`.

    Raises:
        PacelineError: it is no number, or too large.
    """
    value = float(_exact(flag, text, "number"))
    if abs(value) == float("inf"):
        raise PacelineError(f"{flag} {text} is too large", hint="legal: up to 1e308")
    return value


def parse_whole(flag: str, text: str) -> int:
    """The whole number that was typed for `flag`: 64k and 1e3 are whole, 0.5 is not.

    Raises:
        PacelineError: it is no whole number, or too large for 64 bits.
    """
    exact = _exact(flag, text, "whole number")
    if abs(exact) > _MOST_WHOLE:
        raise PacelineError(f"{flag} {text} is too large", hint=f"legal: up to {_MOST_WHOLE}")
    if exact != exact.to_integral_value():
        raise _refused(flag, text, "whole number")
    return int(exact)


def parse_share(flag: str, text: str) -> float:
    """The share that was typed for `flag`, as a fraction: 0.9 and 90% are the same.

    Raises:
        PacelineError: it is no number, or not above 0 and up to 1.
    """
    exact = _exact(flag, text, "share")
    if not 0 < exact <= 1:
        raise PacelineError(f"{flag} {text} is out of range", hint="legal: 0 < value <= 1, or a percentage such as 90%")
    return float(exact)


def whole_numbers(text: str, flag: str) -> list[int]:
    """A comma-separated list, ascending, each number once.

    Raises:
        PacelineError: one is no whole number of 1 or more, or there is none.
    """
    found = set()
    for part in text.split(","):
        try:
            number = parse_whole(flag, part)
        except PacelineError:
            number = 0
        if number < 1:
            raise PacelineError(
                f"{flag} {text} holds {part.strip() or 'nothing'}", hint="whole numbers of 1 or more: 1,2,4,8"
            )
        found.add(number)
    return sorted(found)


def _exact(flag: str, text: str, kind: str) -> Decimal:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or (found[2] == "%") > (kind == "share"):
        raise _refused(flag, text, kind)
    return Decimal(found[1].replace("_", "")).scaleb(SUFFIXES.get(found[2].lower(), 0))


def _refused(flag: str, text: str, kind: str) -> PacelineError:
    return PacelineError(f"{flag} {text} is not a {kind}", hint=f"write {_EXAMPLES[kind]}")
