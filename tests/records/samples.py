"""Events for these tests: strategies, short hand, and what becomes of numbers that are not finite."""

from __future__ import annotations

import math
import types
import typing
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from paceline.records.schema import AnyEvent, Checkpoint, Note, Start, Step

_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_ANY_NUMBER = st.floats()
_WHOLE = st.integers(min_value=0, max_value=2**62)
_TEXT = st.text(max_size=40)
_MAY_BE_ANY_NUMBER = {("Step", "loss"), ("Measure", "value")}
"""A run that diverges writes what is no finite number there."""


def _value(owner: type, name: str, hint: object) -> st.SearchStrategy:
    if (owner.__name__, name) in _MAY_BE_ANY_NUMBER:
        return _ANY_NUMBER
    if isinstance(hint, types.UnionType):
        return st.one_of(*(_value(owner, name, arm) for arm in typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return records(hint)
    if typing.get_origin(hint) is dict:
        return st.dictionaries(_TEXT, _value(owner, name, typing.get_args(hint)[1]), max_size=3)
    if typing.get_origin(hint) is tuple:
        return st.tuples(*(_value(owner, name, part) for part in typing.get_args(hint)))
    if typing.get_origin(hint) is list:
        return st.lists(_value(owner, name, typing.get_args(hint)[0]), max_size=3)
    if hint is msgspec.UnsetType:
        return st.just(msgspec.UNSET)
    if hint is typing.Any:
        return _TEXT
    return {int: _WHOLE, float: _NUMBERS, str: _TEXT, bool: st.booleans(), type(None): st.none()}[hint]


def records(kind: type[msgspec.Struct]) -> st.SearchStrategy:
    """Any instance of a record type, made from its annotations."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: _value(kind, name, hints[name]) for name in kind.__struct_fields__})


def events() -> st.SearchStrategy:
    """Any event."""
    return st.one_of(*(records(kind) for kind in typing.get_args(AnyEvent)))


def comparable(record: object) -> object:
    """A record as plain data in which what is no finite number is the word NaN: JSON has one word for it, null."""
    if isinstance(record, msgspec.Struct):
        return type(record).__name__, [comparable(getattr(record, name)) for name in record.__struct_fields__]
    if isinstance(record, dict):
        return {key: comparable(value) for key, value in record.items()}
    if isinstance(record, list):
        return [comparable(value) for value in record]
    if isinstance(record, float) and not math.isfinite(record):
        return "NaN"
    return record


def start(step: int, session: int = 1, resumed_from: int | None = None) -> Start:
    """A session that goes on from `step`."""
    return Start(session=session, time_unix_s=0.0, world=1, step=step, resumed_from=resumed_from)


def step(number: int, loss: float = 1.0) -> Step:
    """Step `number`; the loss tells two of the same number apart."""
    return Step(
        step=number,
        epoch=0,
        samples=number,
        count=1.0,
        loss=loss,
        lr=0.1,
        elapsed_s=float(number),
        data_s=0.0,
        forward_s=0.0,
        backward_s=0.0,
        update_s=0.0,
    )


def checkpoint(number: int) -> Checkpoint:
    """A checkpoint at step `number`."""
    return Checkpoint(step=number, path="c", duration_s=0.0, size_bytes=1, elapsed_s=0.0)


def note(message: str) -> Note:
    """A note."""
    return Note(message=message)


def write_lines(path: Path, *records: msgspec.Struct | bytes) -> Path:
    """An event file written without the writer; bytes are taken as they are."""
    lines = [r if isinstance(r, bytes) else msgspec.json.encode(r) + b"\n" for r in records]
    path.write_bytes(b"".join(lines))
    return path
