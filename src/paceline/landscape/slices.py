"""The loss at many points, shared out over ranks: a surface, a line.

**A point is evaluated by one rank alone**, with the same chunks in the same order whichever rank that is, so its value
does not depend on how many ranks there are. Points are dealt by index modulo world: neighbours cost the same. Each is
appended to its rank's file as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from paceline.curvature.fixed_loss import Value
from paceline.landscape.kept_parts import PointRecord, read_points
from paceline.landscape.ranks import Ranks
from paceline.parallel import agree
from paceline.records.landscape import finite
from paceline.records.writer import EventWriter

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Values:
    """At n points.

    Attributes:
        loss: (n,) NaN where it is no finite number.
        metrics: by name, (n,) each.
    """

    loss: Floats
    metrics: dict[str, Floats]

    def arrays(self, prefix: str, shape: tuple[int, ...] | None = None) -> dict[str, Floats]:
        """As they stand in landscape.npz."""
        named = {"loss": self.loss, **self.metrics}
        return {f"{prefix}_{name}": column.reshape(shape or column.shape) for name, column in named.items()}


def coordinates(points: int, span: float) -> Floats:
    """(points,) from -span to span, exactly symmetric; an odd number has 0 among them."""
    steps = np.arange(points, dtype=np.float64)
    line: Floats = (2 * steps - (points - 1)) * (span / (points - 1))
    return line


def grid(x: Floats, y: Floats) -> Floats:
    """(m * n, 2) the points of a rectangle with x (n,) and y (m,): row i * n + j is (x[j], y[i])."""
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def evaluate(ranks: Ranks, name: str, points: int, at: Callable[[int], Value]) -> Values:
    """Evaluate `at(0), ..., at(points - 1)`, all ranks together.

    Args:
        ranks: this rank among the others.
        name: of the slice; its points are kept below that name.
        points: how many.
        at: the value at one point, by this rank alone.

    Raises:
        Stopped: on every rank; finished points are kept.
    """
    folder = ranks.parts / name
    known = agree.from_rank_zero(lambda: read_points(folder, ranks.note))
    own = [index for index in range(points) if index not in known][ranks.rank :: ranks.world]
    before = len(known)
    ranks.progress(name, before, points, "points")
    found: list[PointRecord] = []
    with EventWriter(folder / f"rank-{ranks.rank:05d}.jsonl") as writer:
        for count, index in enumerate(own, start=1):
            if any(ranks.stop.wishes()):  # the other ranks may not know yet
                break
            value = at(index)
            metrics = {metric: finite(number) for metric, number in value.metrics.items()}
            found.append(PointRecord(index, finite(value.loss), metrics))
            writer.write(found[-1])
            done = min(points, before + count * ranks.world)
            ranks.progress(name, done, points, "points", f"loss {value.loss:.4g}")
    ranks.pause()
    parts: list[list[PointRecord]] = [[] for _ in range(ranks.world)]
    dist.all_gather_object(parts, found)
    for part in parts:
        known |= {record.index: record for record in part}
    records = [known[index] for index in range(points)]
    return Values(
        np.array([record.loss for record in records], dtype=np.float64),
        {
            metric: np.array([record.metrics.get(metric) for record in records], dtype=np.float64)
            for metric in records[0].metrics
        },
    )
