"""The loss at many points, shared out over ranks: a surface, a line.

**A point is evaluated by one rank alone**, with the same chunks in the same order whichever rank that is, so its value
does not depend on how many ranks there are. Points are dealt by index modulo world: neighbours cost the same. Each is
appended to its rank's file as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from paceline.curvature.fixed_loss import FixedLoss, Value
from paceline.landscape.kept_parts import PointRecord, PointStore, as_number
from paceline.landscape.work import Work
from paceline.records.landscape import finite

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


def evaluate(work: Work, name: str, points: int, at: Callable[[int], Value]) -> Values:
    """Evaluate `at(0), ..., at(points - 1)`, all ranks together.

    Args:
        work: its surroundings.
        name: of the slice; its points are kept below that name.
        points: how many.
        at: the value at one point, by this rank alone.

    Raises:
        Stopped: on every rank; finished points are kept.
    """
    store = PointStore(work.parts / name, work.note)
    known = work.from_rank_zero(store.read)
    own = [index for index in range(points) if index not in known][work.rank :: work.world]
    before = len(known)
    work.tell(name, before, points, "points")
    found: list[PointRecord] = []
    with store.writer(work.rank) as writer:
        for count, index in enumerate(own, start=1):
            if work.told_to_stop():
                break
            value = at(index)
            metrics = {metric: finite(number) for metric, number in value.metrics.items()}
            record = PointRecord(index, finite(value.loss), metrics)
            writer.write(record)
            found.append(record)
            work.tell(name, min(points, before + count * work.world), points, "points", f"loss {value.loss:.4g}")
    work.pause()
    for part in work.gather(found):
        known |= {record.index: record for record in part}
    return _as_values([known[index] for index in range(points)])


def _as_values(records: list[PointRecord]) -> Values:
    loss = np.array([as_number(record.loss) for record in records])
    names = records[0].metrics
    metrics = {name: np.array([as_number(record.metrics.get(name)) for record in records]) for name in names}
    return Values(loss, metrics)


@dataclass(frozen=True)
class Grid:
    """A rectangle of points.

    Attributes:
        x: (n,) along the first axis.
        y: (m,) along the second.
    """

    x: Floats
    y: Floats

    def __len__(self) -> int:
        return len(self.x) * len(self.y)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n): row i belongs to y[i]."""
        return len(self.y), len(self.x)

    def __getitem__(self, index: int) -> tuple[float, float]:
        row, column = divmod(index, len(self.x))
        return float(self.x[column]), float(self.y[row])


def along(loss: FixedLoss, place: Callable[[Tensor, Any], Tensor], where: Any) -> Callable[[int], Value]:
    """`at` for `evaluate`: the present weights moved by `place(weights, where[index])`.

    Two copies of the weights are held at a time: the point, and the one that the loss puts into the model.
    """
    return lambda index: loss.value_alone(place(loss.point(), where[index]))
