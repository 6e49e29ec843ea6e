"""Which rank read which samples in a pass over a loader, counted from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.ledger import ledger_files, ledger_rows
from paceline.records.rundir import RunDir
from paceline.report.observed_ranks import ObservedJob, Pass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

COLUMNS = 200
"""Columns of a map at most; each is a range of sample indices."""
ROWS = 16
"""Ranks in a map at most; all are counted."""
MOST_PASSES = 3
MOST_LOADERS = 4
_RECORD = np.dtype([("batch", "<i8"), ("index", "<i8")])


@dataclass(frozen=True)
class RankReads:
    """What one rank read in a pass."""

    rank: int
    samples: int
    distinct: int
    first: int
    last: int
    """Smallest and greatest index."""
    mean: list[float]
    """(columns,) how often a sample of each column was read."""


@dataclass(frozen=True)
class PassMap:
    """Samples of one pass over a loader.

    Attributes:
        loader, number: of the loader, and of the pass over it.
        data: class of the data set, with the line where the loader was made.
        samples: indices that the map spans.
        width: indices in a column.
        ranks: reads of the ranks that are shown.
        counted: ranks that are counted.
        mean: (columns,) how often a sample of each column was read, by all ranks together.
        once, more: samples that were read once, and more than once, by all ranks together.
        never: samples of the whole data set that no rank read; None where its size is not known.
        subset: samples of the Subset that the loader reads; None where it reads the whole data set.
        left_early: ranks that left the pass before its end, or whose end was not recorded.
        absent: ranks of the job without indices of this pass.
    """

    loader: int
    number: int
    data: str
    samples: int
    width: int
    ranks: list[RankReads]
    counted: int
    mean: list[float]
    once: int
    more: int
    never: int | None
    subset: int | None
    left_early: list[int]
    absent: list[int]

    @property
    def centers(self) -> list[float]:
        """The middle of each column."""
        return [
            min(start + self.width, self.samples) / 2 + start / 2 - 0.5 for start in range(0, self.samples, self.width)
        ]


def ledger_maps(run: RunDir, job: ObservedJob, world: int | None) -> Iterator[PassMap]:
    """Maps of the first, the second and the last pass over each of the first loaders.

    Args:
        run: the run directory.
        job: what its ranks recorded.
        world: ranks of the job; None where that is not known.
    """
    passes: dict[int, dict[int, dict[int, Path]]] = {}
    for file in sorted(ledger_files(run), key=lambda each: each.attempt):  # the last attempt counts
        passes.setdefault(file.loader, {}).setdefault(file.number, {})[file.rank] = file.path
    for loader in sorted(passes)[:MOST_LOADERS]:
        numbers = sorted(passes[loader])
        shown = numbers if len(numbers) <= MOST_PASSES else [*numbers[: MOST_PASSES - 1], numbers[-1]]
        for number in shown:
            indices = {rank: _read(path) for rank, path in sorted(passes[loader][number].items())}
            indices = {rank: found for rank, found in indices.items() if len(found)}
            if indices:
                yield _map((loader, number), indices, job, world)


def _read(path: Path) -> Indices:
    """Indices in the order of reading; negative ones, which have no column, are left out."""
    found: Indices = np.frombuffer(ledger_rows(path), dtype=_RECORD)["index"]
    return found[found >= 0]


def _map(of: Pass, indices: dict[int, Indices], job: ObservedJob, world: int | None) -> PassMap:
    begun = next((rank.begun[of] for rank in job.ranks.values() if of in rank.begun), None)
    greatest = max(int(found.max()) for found in indices.values()) + 1
    samples = max(greatest, begun.root_samples or 0) if begun else greatest
    width = -(-samples // COLUMNS)
    sizes = np.diff([*range(0, samples, width), samples])
    _, times = np.unique(np.concatenate(list(indices.values())), return_counts=True)
    total = np.zeros(len(sizes))
    reads = []
    rows = list(indices) if len(indices) <= ROWS else [list(indices)[i * len(indices) // ROWS] for i in range(ROWS)]
    for rank, found in indices.items():
        counts = np.bincount(found // width, minlength=len(sizes))
        total += counts
        if rank in rows:
            distinct = len(np.unique(found))
            mean = (counts / sizes).tolist()
            reads.append(RankReads(rank, len(found), distinct, int(found.min()), int(found.max()), mean))
    absent = sorted(set(range(world or 0)) - set(indices))
    left = [rank for rank in indices if rank in job.ranks and not _exhausted(job, rank, of)]
    subset = begun.samples if begun is not None and begun.subset is not None else None
    place = f", {Path(begun.place.path).name}:{begun.place.line}" if begun is not None and begun.place else ""
    return PassMap(
        loader=of[0],
        number=of[1],
        data=f"{begun.dataset}{place}" if begun is not None else "",
        samples=samples,
        width=width,
        ranks=reads,
        counted=len(indices),
        mean=(total / sizes).tolist(),
        once=int((times == 1).sum()),
        more=int((times > 1).sum()),
        never=samples - len(times) if begun is not None and begun.root_samples is not None else None,
        subset=subset,
        left_early=left,
        absent=absent,
    )


def _exhausted(job: ObservedJob, rank: int, of: Pass) -> bool:
    ended = job.ranks[rank].ended.get(of)
    return ended is not None and ended.exhausted
