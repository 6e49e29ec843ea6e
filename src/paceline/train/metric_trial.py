"""Each metric of a task tried on one evaluation batch and on its halves, before anything is started."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from paceline.tasks.contract import Problem, kind, metric_problem, rows_problem
from paceline.tasks.task import Gathered, Metric
from paceline.train.additivity import is_weighted_mean

_SLIPS = (TypeError, AttributeError, NameError, ImportError)
"""Errors of `Gathered.finish` that more rows would not help against; others may come from a batch with few classes."""
_TOLERANCE = 1e-3
"""Relative deviation that is put down to rounding."""


@dataclass(frozen=True)
class Piece:
    """One evaluation batch: how many samples, the loss's outputs for it, and the batch."""

    samples: int
    outputs: Any
    batch: Any


@dataclass
class MetricTrial:
    """Calls metrics, and notes what people should know of them.

    Attributes:
        whole: an evaluation batch.
        halves: of it; none when it is a single sample.
        guard: guard(field, function) -> a context in which what the user's function raises becomes a message about the
            field.
        refuse: raises the message for a problem of a function.
        notes: for people.
    """

    whole: Piece
    halves: Sequence[Piece]
    guard: Callable[[str, Any], AbstractContextManager[None]]
    refuse: Callable[[Problem, Any], NoReturn]
    notes: list[str] = field(default_factory=list)

    def value(self, name: str, metric: Metric | Gathered) -> float | None:
        """The metric of the whole batch; None if it is no finite number."""
        shown = f"metrics[{name!r}]"
        value = self._gathered(shown, metric) if isinstance(metric, Gathered) else self._mean(shown, metric)
        if value is None or math.isfinite(value):
            return value
        self.notes.append(f"{shown} is {value} on a first evaluation batch, with the initial weights")
        return None

    def _mean(self, name: str, metric: Metric) -> float | None:
        pairs = []
        for piece in (self.whole, *self.halves):
            with self.guard(name, metric), torch.no_grad():
                returned = metric(piece.outputs, piece.batch)
            if (problem := metric_problem(name, returned)) is not None:
                self.refuse(problem, metric)
            pairs.append((float(returned[0]), float(returned[1])))
        if self.halves:
            self._check_additive(name, metric, pairs)
        total, count = pairs[0]
        return total / count if count else None

    def _check_additive(self, name: str, metric: Metric, pairs: Sequence[tuple[float, float]]) -> None:
        """Refuse a mean in place of a sum, and note any other metric that depends on how the data are cut."""
        (whole, count), (a, a_count), (b, b_count) = pairs
        near = _TOLERANCE * (abs(a) + abs(b))

        def close(one: float, other: float) -> bool:
            return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=near)

        if close(whole, a + b) and math.isclose(count, a_count + b_count, rel_tol=_TOLERANCE, abs_tol=1e-9):
            return
        if not all(map(math.isfinite, (whole, a, b))) or close(a, b):
            return  # a constant, such as the norm of the weights, is the same mean however the data are cut
        samples = (self.halves[0].samples, self.halves[1].samples)
        if is_weighted_mean(whole, (a, b), ((a_count, b_count), samples), near):
            problem = Problem(
                name,
                "looks like a mean where a sum is asked for",
                "return the sum over the batch and its count: (right.sum(), len(right))",
                f"(sum, count) is ({whole:.6g}, {count:g}) for {sum(samples)} samples, "
                f"and ({a:.6g}, {a_count:g}) and ({b:.6g}, {b_count:g}) for their halves",
            )
            self.refuse(problem, metric)
        self.notes.append(
            f"{name} is no sum over samples: its value depends on eval_batch and on the number of workers"
        )

    def _gathered(self, name: str, metric: Gathered) -> float | None:
        with self.guard(name, metric.rows), torch.no_grad():
            rows = metric.rows(self.whole.outputs, self.whole.batch)
        if (problem := rows_problem(name, rows, self.whole.samples)) is not None:
            self.refuse(problem, metric.rows)
        returned: Any = None
        with self.guard(name, metric.finish), torch.no_grad():
            try:
                returned = metric.finish(rows)
            except _SLIPS:
                raise
            except Exception as error:  # noqa: BLE001  # perhaps only since these are few rows
                self.notes.append(f"{name} could not be tried on {self.whole.samples} rows: {error}")
                return None
        try:
            return float(returned)
        except (TypeError, ValueError, RuntimeError):
            what = f"has a finish that returned {kind(returned)}"
            self.refuse(Problem(name, what, "finish returns one number"), metric.finish)
