"""The ledger on disk: which samples each rank received, batch by batch.

`ledger/loader-<l>/epoch-<pass>/rank-<r>.npy` is an array of (batch, index), both 64-bit integers, that numpy reads.
Indices are those of the root data set, below any Subset.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from paceline.records.errors import PacelineError
from paceline.records.observed_rank import LedgerBatch
from paceline.records.rundir import RunDir, make_dirs

_ROW = struct.Struct("<qq")
_HEADER_BYTES = 128
"""Before the first row of a file."""


class LedgerWriter:
    """Appends sample indices to .npy files, each of which is valid after every call.

    Args:
        run: the run directory.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._rows: dict[Path, int] = {}

    def add(self, rank: int, attempt: int, at: tuple[int, int], batches: Iterable[tuple[int, array[int]]]) -> None:
        """Add batches of one pass, each its number and its indices; `at` is the loader and the pass."""
        loader, number = at
        path = self._run.ledger(loader, number, rank, attempt)
        new = path not in self._rows
        if new:
            make_dirs(path.parent)
        content = b"".join(_rows(batch, indices) for batch, indices in batches)
        rows = self._rows.get(path, 0) + len(content) // _ROW.size
        with path.open("wb" if new else "r+b") as file:
            if new:
                file.write(self._header(0))
            # The header names the rows only when they are there: a full disk leaves an array without them.
            file.seek(0, os.SEEK_END)
            file.write(content)
            file.flush()
            file.seek(0)
            file.write(self._header(rows))
        self._rows[path] = rows

    def _header(self, rows: int) -> bytes:
        """A header of version 1.0 of numpy's format, padded so that it never grows."""
        text = f"{{'descr': [('batch', '<i8'), ('index', '<i8')], 'fortran_order': False, 'shape': ({rows},), }}"
        length = _HEADER_BYTES - 10
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.ljust(length - 1).encode() + b"\n"


def _rows(batch: int, indices: array[int]) -> bytes:
    rows = array("q", bytes(_ROW.size * len(indices)))
    rows[::2] = array("q", [batch]) * len(indices)
    rows[1::2] = indices
    if sys.byteorder == "big":
        rows.byteswap()
    return rows.tobytes()


class LedgerFile(NamedTuple):
    """One file of the ledger, and what its name says."""

    path: Path
    loader: int
    number: int
    """The pass."""
    rank: int
    attempt: int


_NAME = re.compile(r"loader-(\d+)/epoch-(\d+)/rank-(\d+)(?:\.attempt-(\d+))?\.npy")


def ledger_files(run: RunDir) -> Iterator[LedgerFile]:
    """All files of a run; those with other names, as copies of a user, are left out."""
    folder = run.path / "ledger"
    for path in sorted(folder.glob("*/*/*.npy")):
        if found := _NAME.fullmatch(path.relative_to(folder).as_posix()):
            loader, number, rank, attempt = (int(part or 1) for part in found.groups())
            yield LedgerFile(path, loader, number, rank, attempt)


def ledger_rows(path: Path) -> bytes:
    """The whole rows of a file, each a batch and an index as little-endian 64-bit integers; a torn end is left out.

    Raises:
        PacelineError: the file cannot be read.
    """
    try:
        content = path.read_bytes()[_HEADER_BYTES:]
    except OSError as error:
        raise PacelineError(f"cannot read {path}", why=error.strerror or str(error)) from error
    return content[: len(content) // _ROW.size * _ROW.size]


def read_ledger(run: RunDir) -> Iterator[tuple[int, LedgerBatch]]:
    """Ranks and batches of all files, file by file.

    Raises:
        PacelineError: a file cannot be read.
    """
    for path, loader, number, rank, attempt in ledger_files(run):
        for batch, rows in itertools.groupby(_ROW.iter_unpack(ledger_rows(path)), key=lambda row: row[0]):
            indices = [index for _, index in rows]
            yield rank, LedgerBatch(attempt=attempt, loader=loader, number=number, batch=batch, indices=indices)
