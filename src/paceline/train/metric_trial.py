"""Each metric of a task tried on one evaluation batch and on its halves, before anything is started."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paceline.tasks.contract import Problem, kind, metric_problem, rows_problem
from paceline.tasks.task import Gathered, Task

Guard = Callable[[str, Any], AbstractContextManager[None]]
"""guard(field, function) -> a context in which what the user's function raises becomes a message about the field."""

_SLIPS = (TypeError, AttributeError, NameError, ImportError)
"""Errors of `Gathered.finish` that more rows would not help against; others may come from a batch with few classes."""


@dataclass(frozen=True)
class Piece:
    """One evaluation batch: how many samples, the loss's outputs for it, and the batch."""

    samples: int
    outputs: Any
    batch: Any


@dataclass
class Tried:
    """What metrics gave on the whole batch.

    Attributes:
        values: by name; None for one that is no finite number.
        notes: for people.
    """

    values: dict[str, float | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def try_metrics(
    task: Task, whole: Piece, halves: Sequence[Piece], guard: Guard, refuse: Callable[[Problem, Any], None]
) -> Tried:
    """Call every metric.

    Args:
        task: gives the metrics.
        whole: an evaluation batch.
        halves: of it; none when it is a single sample.
        guard: see `Guard`.
        refuse: raises the message for a problem of a function.
    """
    tried = Tried()
    for name, metric in task.metrics.items():
        if isinstance(metric, Gathered):
            value = _gathered(name, metric, whole, guard, refuse, tried)
        else:
            value = _mean(name, metric, whole, halves, guard, refuse, tried)
        tried.values[name] = value if value is not None and math.isfinite(value) else None
        if value is not None and not math.isfinite(value):
            tried.notes.append(f"metrics[{name!r}] is {value} on a first evaluation batch, with the initial weights")
    return tried


def _mean(
    name: str,
    metric: Callable[[Any, Any], Any],
    whole: Piece,
    halves: Sequence[Piece],
    guard: Guard,
    refuse: Callable[[Problem, Any], None],
    tried: Tried,
) -> float | None:
    pairs = []
    for piece in (whole, *halves):
        with guard(f"metrics[{name!r}]", metric), torch.no_grad():
            returned = metric(piece.outputs, piece.batch)
        problem = metric_problem(name, returned)
        if problem is not None:
            refuse(problem, metric)
        pairs.append((float(returned[0]), float(returned[1])))
    if len(pairs) == 3:
        _additive(name, pairs, [piece.samples for piece in halves], lambda problem: refuse(problem, metric), tried)
    total, count = pairs[0]
    return total / count if count else None


def _additive(
    name: str,
    pairs: list[tuple[float, float]],
    samples: list[int],
    refuse: Callable[[Problem], None],
    tried: Tried,
) -> None:
    """Refuse a mean in place of a sum, and note any other metric that depends on how the data are cut."""
    (whole, count), (a, a_count), (b, b_count) = pairs

    def close(one: float, other: float) -> bool:
        return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-3 * (abs(a) + abs(b)))

    if close(whole, a + b) and math.isclose(count, a_count + b_count, rel_tol=1e-3, abs_tol=1e-9):
        return
    if not all(map(math.isfinite, (whole, a, b))) or close(a, b):
        return  # a constant, such as the norm of the weights, is the same mean however the data are cut
    weights = [(a_count, b_count), (float(samples[0]), float(samples[1]))]
    if any(sum(pair) and close(whole, (a * pair[0] + b * pair[1]) / sum(pair)) for pair in weights):
        refuse(
            Problem(
                f"metrics[{name!r}]",
                "looks like a mean where a sum is asked for",
                "return the sum over the batch and its count: (right.sum(), len(right))",
                f"(sum, count) is ({whole:.6g}, {count:g}) for {sum(samples)} samples, "
                f"and ({a:.6g}, {a_count:g}) and ({b:.6g}, {b_count:g}) for their halves",
            )
        )
    tried.notes.append(
        f"metrics[{name!r}] is no sum over samples: its value depends on eval_batch and on the number of workers"
    )


def _gathered(
    name: str, metric: Gathered, whole: Piece, guard: Guard, refuse: Callable[[Problem, Any], None], tried: Tried
) -> float | None:
    with guard(f"metrics[{name!r}]", metric.rows), torch.no_grad():
        rows = metric.rows(whole.outputs, whole.batch)
    problem = rows_problem(name, rows, whole.samples)
    if problem is not None:
        refuse(problem, metric.rows)
    assert isinstance(rows, Tensor)
    returned: Any = None
    with guard(f"metrics[{name!r}]", metric.finish), torch.no_grad():
        try:
            returned = metric.finish(rows)
        except _SLIPS:
            raise
        except Exception as error:  # noqa: BLE001  # perhaps only since these are few rows
            tried.notes.append(f"metrics[{name!r}] could not be tried on {whole.samples} rows: {error}")
            return None
    try:
        return float(returned)
    except (TypeError, ValueError, RuntimeError):
        refuse(
            Problem(f"metrics[{name!r}]", f"has a finish that returned {kind(returned)}", "finish returns one number"),
            metric.finish,
        )
    return None
