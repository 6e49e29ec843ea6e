"""What a rank of the pool sends back, and how: pickled, or plain where the rank is not believed.

Whoever owns a process owns what it sends, and reading a pickle runs code. So a plain answer is JSON, of a known shape
and a limited length, and the side that reads it never waits for the rest of one.
"""

from __future__ import annotations

import math
import os
import struct
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import msgspec

MOST_BYTES = 16 << 20
"""The longest plain answer."""
_MOST_ERROR, _MOST_TRACEBACK = 1 << 16, 1 << 18
_DEPTH = 100
_HEADER = struct.Struct("!i")
"""In front of a message, as `Connection.send_bytes` writes it for up to 2 GiB."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Answer:
    """The answer of a rank: a result, or the exception that it raised."""

    at_s: float
    """`time.monotonic()`, one clock for all processes of a machine: tells which rank failed first. Of a plain answer,
    when it was read: a rank could claim anything."""
    result: Any = None
    """Pickled; of a plain answer JSON on its way, and the value itself once it was read."""
    error: str = ""
    """The exception's type and message; empty when there is a result."""
    traceback: str = ""
    exception: bytes | None = None
    """The exception itself, when it can be pickled; never with a plain answer."""


@dataclass(frozen=True)
class RankUse:
    """Resources of a rank, measured from outside.

    Attributes:
        rank: which one.
        cpu_s: processor seconds of the rank and of its children that have ended; None when it was gone already.
        answered_s: seconds from the call to its answer, on the caller's clock; None without one.
    """

    rank: int
    cpu_s: float | None
    answered_s: float | None


class Unreadable(Exception):  # noqa: N818
    """The bytes are no plain answer."""


class _Wire(msgspec.Struct, frozen=True):
    result: Any = None
    error: str = ""
    traceback: str = ""


def plain_result(value: Any) -> bytes:
    """JSON of a result.

    Raises:
        TypeError: something in it is neither None, bool, int, float, str, list nor dict with str keys.
        ValueError: nan or infinity, too deep, or too long: JSON cannot carry it.
    """
    _check(value, "the result", 0)
    content = msgspec.json.encode(value)
    if len(content) > MOST_BYTES - _MOST_ERROR:
        raise ValueError(f"the result takes {len(content)} bytes; a plain answer has at most {MOST_BYTES}")
    return content


def _check(value: Any, place: str, depth: int) -> None:
    kind = type(value)
    if depth > _DEPTH:
        raise ValueError(f"{place} is nested more than {_DEPTH} deep")
    if kind is float and not math.isfinite(value):
        raise ValueError(f"{place} is {value}, which JSON cannot carry")
    if kind is list:
        for number, each in enumerate(value):
            _check(each, f"{place}[{number}]" if depth < 3 else place, depth + 1)
    elif kind is dict:
        for key, each in value.items():
            if type(key) is not str:
                raise TypeError(f"{place} has a key of type {type(key).__name__}; plain answers have str keys")
            _check(each, f"{place}[{key!r:.40}]" if depth < 3 else place, depth + 1)
    elif value is not None and kind not in (bool, int, float, str):
        raise TypeError(
            f"{place} is of type {kind.__name__}; plain answers are None, bool, int, float, str, list, dict"
        )


def plain_bytes(answer: Answer) -> bytes:
    """An answer whose result is JSON already, for the way."""
    wire = _Wire(
        result=msgspec.Raw(answer.result or b"null"),
        error=_text(answer.error[:_MOST_ERROR]),
        traceback=_text(answer.traceback[-_MOST_TRACEBACK:]),
    )
    return msgspec.json.encode(wire)


def _text(words: str) -> str:
    """Without halves of characters, which JSON cannot carry."""
    return words.encode(errors="replace").decode()


class PlainReader:
    """Reads the one plain answer of a rank, bit by bit, and never waits.

    Args:
        channel: to the rank; it must be read by nobody else.
    """

    def __init__(self, channel: Connection) -> None:
        self._handle = channel.fileno()
        os.set_blocking(self._handle, False)
        self._got = bytearray()

    def read(self) -> Answer | None:
        """The answer, or None while it is not all there.

        Raises:
            EOFError: the other side is gone, without a word.
            Unreadable: what came is no answer; said in words.
        """
        while (missing := self._missing()) > 0:
            try:
                part = os.read(self._handle, min(missing, _CHUNK))
            except BlockingIOError:
                return None
            except OSError:
                part = b""
            if not part and not self._got:
                raise EOFError
            if not part:
                raise Unreadable("it ends in the middle")
            self._got += part
        return _decoded(bytes(self._got[_HEADER.size :]))

    def _missing(self) -> int:
        """Bytes still to come, as far as is known."""
        if len(self._got) < _HEADER.size:
            return _HEADER.size - len(self._got)
        (length,) = _HEADER.unpack(self._got[: _HEADER.size])
        if not 0 <= length <= MOST_BYTES:
            raise Unreadable(f"it is longer than {MOST_BYTES} bytes")
        return int(_HEADER.size + length - len(self._got))


def _decoded(content: bytes) -> Answer:
    at_s = time.monotonic()
    try:
        wire = msgspec.json.decode(content, type=_Wire)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(f"it is no JSON of the expected form: {error}"[:200]) from None
    return Answer(at_s, wire.result, wire.error[:_MOST_ERROR], wire.traceback[-_MOST_TRACEBACK:])
