"""JSON that has one spelling, so that it can be signed: strict reading, and writing as RFC 8785 wants it.

Only values whose spelling nobody can doubt are taken: text, whole numbers below 2**53, true, false, null, lists and
objects. Numbers with a fraction are written as text by whoever needs one, so that 87.5 stays 87.5 everywhere.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn

LARGEST = 256 * 1024
"""Bytes of a file that is read at all; a certificate has about 10 000."""
DEEPEST = 24
"""Levels of lists and objects; a certificate has 6."""
_INTEGER = 2**53 - 1


class StrictJsonError(ValueError):
    """It is no JSON, or none that could be signed; the text says why."""


def load(raw: bytes) -> Any:
    """Read JSON that has one meaning only.

    Raises:
        StrictJsonError: torn, no JSON, too large or deep, a name twice in an object, NaN, a fraction, a second value.
    """
    if len(raw) > LARGEST:
        raise StrictJsonError(f"it has more than {LARGEST} bytes, and so many are not read")
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_float=_fraction, parse_int=_integer)
        _look(value, 0)  # NaN and infinity, too, which json takes
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise StrictJsonError(_spot(text, error)) from None
    except RecursionError:
        raise StrictJsonError("it is nested too deeply") from None
    return value


def canonical(value: Any) -> bytes:
    """The one spelling of RFC 8785: names sorted by UTF-16 code units, nothing between the signs, UTF-8.

    Raises:
        StrictJsonError: a value that has no such spelling here.
    """
    _look(value, 0)
    # What json escapes in text is exactly what RFC 8785 (3.2.2.2) wants; only the order of names is its own.
    return json.dumps(_sorted(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")


def as_file(value: Any) -> bytes:
    """For people to look at: in lines, and small enough to be read again.

    Raises:
        StrictJsonError: it would be larger than is read.
    """
    raw = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    if len(raw) > LARGEST:
        raise StrictJsonError(f"it would have {len(raw)} bytes, and more than {LARGEST} are not read")
    return raw


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value, key=lambda name: name.encode("utf-16-be"))}
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    return value


def _look(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise StrictJsonError("it is nested too deeply")
    if isinstance(value, dict):
        for name, each in value.items():
            _text(name)
            _look(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _look(each, depth + 1)
    elif isinstance(value, str):
        _text(value)
    elif value is not None and not isinstance(value, bool):
        if not isinstance(value, int):
            raise StrictJsonError(f"{value!r} is no text and no whole number")
        if abs(value) > _INTEGER:
            raise StrictJsonError(f"a number is larger than {_INTEGER}")


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise StrictJsonError(f"a name in an object is {value!r}, not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise StrictJsonError("half a character stands in a text") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        # Counted in one pass: a hostile object may have many thousand names.
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise StrictJsonError(f"the name {twice[:40]!r} stands twice in one object")
    return made


def _fraction(text: str) -> NoReturn:
    raise StrictJsonError(f"the number {text[:40]} is not whole")


def _integer(text: str) -> int:
    if len(text) > 17:
        raise StrictJsonError(f"a number is larger than {_INTEGER}")
    return int(text)


def _spot(text: str, error: json.JSONDecodeError) -> str:
    if not text.strip():
        return "it is empty"
    if text.startswith("\ufeff"):
        return "a byte order mark stands in front of it: save it as UTF-8 without one"
    if error.msg.startswith("Extra data"):
        return f"something stands behind its end, in line {error.lineno}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return "it ends in the middle"
    return f"in line {error.lineno}: {error.msg.lower()}"
