"""Everything that takes long to compute is kept below `parts/` as soon as it is there, and read by `--resume`.

Parts are points of slices, named values, Lanczos steps, and arrays. Files of the first three are append-only; a torn
end is computed again. They belong to one measurement with one set of settings: `--resume` refuses others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from paceline.curvature.lanczos import Row
from paceline.curvature.operator import Space
from paceline.landscape.ranks import Ranks
from paceline.parallel import agree
from paceline.records.lines import JsonLines
from paceline.records.rundir import make_dirs, write_error
from paceline.records.writer import EventWriter

_BLOCK = 1 << 18


class PointRecord(msgspec.Struct, frozen=True):
    """The loss at a point of a slice; null where it is no finite number."""

    index: int
    loss: float | None
    metrics: dict[str, float | None]


class _NamedValue(msgspec.Struct, frozen=True):
    key: str
    value: Any


def _read_lines(path: Path, kind: type[Any], note: Callable[[str], None]) -> list[Any]:
    """All whole lines of a file of structs, none if there is no file; `note` gets a message about damaged ones."""
    if not path.exists():
        return []
    lines: JsonLines[Any] = JsonLines(path, kind)
    found = [value for _, value in lines.scan()]
    for remark in lines.notes:
        note(f"{remark}; what they held is computed again")
    return found


def read_points(folder: Path, note: Callable[[str], None]) -> dict[int, PointRecord]:
    """The kept points of a slice by index, of all ranks and sessions; `note` gets a message about damaged ones."""
    paths = sorted(folder.glob("rank-*.jsonl"))
    return {record.index: record for path in paths for record in _read_lines(path, PointRecord, note)}


class KeptValues:
    """Named values of one measure, equal on all ranks, in a file that rank 0 writes.

    Args:
        ranks: all of them make it together.
        name: of the file below `parts/`.
    """

    def __init__(self, ranks: Ranks, name: str) -> None:
        self._path, self._writes = ranks.parts / f"{name}.jsonl", ranks.rank == 0
        lines = agree.from_rank_zero(lambda: _read_lines(self._path, _NamedValue, ranks.note))
        self._values: dict[str, Any] = {line.key: line.value for line in lines}

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The value that is kept under `key`; where there is none, what `make` returns, which is kept."""
        if key not in self._values:
            self._values[key] = make()
            if self._writes:
                with EventWriter(self._path) as writer:
                    writer.write(_NamedValue(key, self._values[key]))
        return self._values[key]

    def __len__(self) -> int:
        return len(self._values)


class KeptRows(list[Row]):
    """Lanczos steps, equal on all ranks, in a file that rank 0 writes: alpha and beta as float64, then the vector.

    Args:
        ranks: all of them make it together.
        name: of the file below `parts/`.
        space: of the vectors.
    """

    def __init__(self, ranks: Ranks, name: str, space: Space) -> None:
        self._path, self._writes = ranks.parts / f"{name}.lanczos", ranks.rank == 0
        vector_type = torch.empty(0, dtype=space.dtype).numpy().dtype
        self._layout = np.dtype([("alpha", "<f8"), ("beta", "<f8"), ("vector", vector_type, (space.size,))])
        super().__init__(agree.from_rank_zero(self._read))

    def _read(self) -> list[Row]:
        """Whole steps in the file; a torn one at its end is cut off."""
        if not self._path.exists():
            return []
        count = self._path.stat().st_size // self._layout.itemsize
        os.truncate(self._path, count * self._layout.itemsize)
        rows = np.memmap(self._path, self._layout, "r", shape=(count,)) if count else ()  # mapped: one copy is held
        return [Row(torch.from_numpy(row["vector"].copy()), float(row["alpha"]), float(row["beta"])) for row in rows]

    def append(self, row: Row) -> None:
        """Add a step and keep it."""
        super().append(row)
        if not self._writes:
            return
        content = np.array((row.alpha, row.beta, row.vector.cpu().numpy()), self._layout).tobytes()
        make_dirs(self._path.parent)
        try:
            with self._path.open("ab") as file:
                file.write(content)
        except OSError as error:
            raise write_error(self._path, error) from error


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


def mapped(path: Path) -> np.ndarray[Any, Any]:
    """The array of an .npy file, without reading it."""
    array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r")
    return array


def blocks(size: int) -> Iterator[slice]:
    """Consecutive parts of a vector, by which a mapped file is read."""
    return (slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK))


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
