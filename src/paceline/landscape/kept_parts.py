"""Parts on disk: points of slices, single numbers, Lanczos steps. Append-only; a torn end is computed again.

A store belongs to one measurement with one set of settings; that is seen to by `--resume`, which refuses others.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from paceline.curvature.eigen import Row
from paceline.records.lines import JsonLines
from paceline.records.rundir import make_dirs, write_error
from paceline.records.writer import EventWriter


class PointRecord(msgspec.Struct, frozen=True):
    """The loss at a point of a slice; null where it is no finite number."""

    index: int
    loss: float | None
    metrics: dict[str, float | None]


class Entry(msgspec.Struct, frozen=True):
    """Anything else that is worth keeping, under a name that says what it is."""

    key: str
    value: Any


Note = Callable[[str], None]


def read_lines(path: Path, kind: type[Any], note: Note) -> list[Any]:
    """All whole lines of a file of structs, none where there is no file; `note` is told what is computed again."""
    if not path.exists():
        return []
    lines: JsonLines[Any] = JsonLines(path, kind)
    found = [value for _, value in lines.scan()]
    for remark in lines.notes:
        note(f"{remark}; what they held is computed again")
    return found


class PointStore:
    """Points of one slice: a file for each rank, all of which are read.

    Args:
        folder: of the slice.
        note: is told what cannot be read.
    """

    def __init__(self, folder: Path, note: Note) -> None:
        self.folder = folder
        self._note = note

    def read(self) -> dict[int, PointRecord]:
        """What all ranks of all sessions have left."""
        records = {}
        for path in sorted(self.folder.glob("rank-*.jsonl")):
            for record in read_lines(path, PointRecord, self._note):
                records[record.index] = record
        return records

    def writer(self, rank: int) -> EventWriter:
        """Appends points of one rank."""
        return EventWriter(self.folder / f"rank-{rank:05d}.jsonl")


class Entries:
    """Named values of one measure, in a file that rank 0 writes and every rank has read.

    Args:
        path: the file.
        known: what was in it.
        writes: whether this rank adds to it.
    """

    def __init__(self, path: Path, known: dict[str, Any], writes: bool) -> None:
        self._path, self._known, self._writes = path, known, writes

    @staticmethod
    def read(path: Path, note: Note) -> dict[str, Any]:
        """What is there."""
        return {entry.key: entry.value for entry in read_lines(path, Entry, note)}

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def add(self, key: str, value: Any) -> Any:
        """Keep a value and return it."""
        self._known[key] = value
        if self._writes:
            with EventWriter(self._path) as writer:
                writer.write(Entry(key, value))
        return value


class LanczosStore:
    """Steps of a Lanczos search in a file: alpha and beta as float64, then the vector. Rank 0 writes, all have read.

    Args:
        path: the file.
        rows: what was in it.
        writes: whether this rank adds to it.
    """

    def __init__(self, path: Path, rows: list[Row], writes: bool) -> None:
        self._path, self._rows, self._writes = path, rows, writes

    @staticmethod
    def read(path: Path, size: int, dtype: torch.dtype) -> list[Row]:
        """Whole steps in the file; a torn one at its end is cut off."""
        width = 16 + size * dtype.itemsize
        try:
            whole = path.stat().st_size // width
            if path.stat().st_size % width:
                os.truncate(path, whole * width)
        except FileNotFoundError:
            return []
        rows = []
        with path.open("rb") as file:
            for _ in range(whole):
                alpha, beta = struct.unpack("<dd", file.read(16))
                vector = torch.frombuffer(bytearray(file.read(width - 16)), dtype=dtype)
                rows.append(Row(vector, alpha, beta))
        return rows

    def append(self, row: Row) -> None:
        """See `curvature.eigen.Store`."""
        self._rows.append(row)
        if not self._writes:
            return
        content = struct.pack("<dd", row.alpha, row.beta) + _bytes(row.vector)
        make_dirs(self._path.parent)
        try:
            with self._path.open("ab") as file:
                file.write(content)
        except OSError as error:
            raise write_error(self._path, error) from error

    def rows(self) -> Sequence[Row]:
        """See `curvature.eigen.Store`."""
        return self._rows


def _bytes(vector: Tensor) -> bytes:
    return vector.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def as_number(value: float | None) -> float:
    """NaN for None."""
    return math.nan if value is None else value


def save_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write an .npy file whole or not at all; too big for memory twice is no problem."""
    with _aside(path) as aside, aside.open("wb") as file:
        np.save(file, array)


def save_rows(path: Path, rows: Iterable[np.ndarray[Any, Any]], count: int) -> None:
    """Write `count` arrays of one shape as an .npy file, whole or not at all; one at a time is held in memory."""
    with _aside(path) as aside:
        file: np.memmap[Any, Any] | None = None
        for number, row in enumerate(rows):
            if file is None:
                file = np.lib.format.open_memmap(aside, mode="w+", dtype=row.dtype, shape=(count, *row.shape))
            file[number] = row
        if file is not None:
            file.flush()


@contextlib.contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """A name beside `path`, which takes its place at the end."""
    make_dirs(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        aside.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
