"""Is the loss of a batch the sum of the losses of its halves? And its count likewise? And each metric?

Everything that Paceline promises about several workers rests on it: a batch is cut over ranks and micro-batches, and
sums and counts are added up again. The likeliest slip is a mean where a sum is asked for. Then there are losses whose
samples see each other (in-batch negatives, statistics of the batch), which depend on how a batch is cut.

    halves          of the data set's indices, so that any collate function works
    eval mode       batch norm and dropout treat each sample by itself
    random numbers  drawn in eval mode: a deviation proves nothing, unless it is that of a mean
    padding         halves of shorter samples are padded less; then both halves get the longest samples
    rounding        16-bit and 32-bit numbers: a deviation has to be there in float64 as well
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from paceline.checkpoint.state import capture_random, restore_random, same_random
from paceline.tasks.contract import Problem, kind, metric_problem, rows_problem
from paceline.tasks.data.arrays import Like, to_device
from paceline.tasks.task import Gathered, Loss, Metric

TOLERANCES = {"fp64": 1e-7, "fp32": 1e-3, "bf16": 3e-2}
"""Relative deviation that is put down to rounding without looking closer, by precision."""
EXACT = 1e-6
"""Likewise in float64, when looking closer; losses may round to float32 inside."""
_REPEATS = 5
_MEAN_LOW, _MEAN_HIGH = 1.7, 2.35
"""Where losses draw random numbers: the sum over halves over the loss of the batch is 2 for a mean, 1 for a sum."""

Verdict = Literal["additive", "mean", "coupled", "count", "not judged"]


@dataclass(frozen=True)
class Trial:
    """How to compute the loss.

    Attributes:
        model: in eval mode.
        loss: of the task.
        autocast: makes the context of forwards.
        rows: the batch of some indices of the data set.
        precision: a key of `TOLERANCES`.
    """

    model: nn.Module
    loss: Callable[[nn.Module, Any], Loss]
    autocast: Callable[[], AbstractContextManager[Any]]
    rows: Callable[[Sequence[int]], Any]
    precision: str

    @torch.no_grad()
    def value(self, indices: Sequence[int]) -> Part:
        """Loss and count of a batch."""
        batch = self.rows(indices)
        with self.autocast():
            loss = self.loss(self.model, batch)
        return Part(float(loss.sum), float(loss.count))


@dataclass(frozen=True)
class Part:
    """A loss sum and its count."""

    sum: float
    count: float


@dataclass(frozen=True)
class Additivity:
    """What was found.

    Attributes:
        verdict: `mean`: the sum is a mean; `coupled`: samples see each other; `count`: the count is no sum.
        deviation: of the batch's loss from the sum over its halves, relative.
        whole: of the batch.
        halves: of its halves.
        why: for `not judged`; and for `additive` where only equal padding makes it so.
        per_batch: the part of the loss that each batch adds once, whatever its samples; 0 if there is none.
    """

    verdict: Verdict
    deviation: float
    whole: Part
    halves: tuple[Part, Part]
    why: str = ""
    per_batch: float = 0.0


def judge(trial: Trial, indices: Sequence[int]) -> Additivity:
    """Judge the loss on the samples `indices`, 2 or more; about two forward passes when it is additive."""
    middle = len(indices) // 2
    parts = [list(indices[:middle]), list(indices[middle:])]
    before = capture_random()
    whole = trial.value(indices)
    random = not same_random(before, capture_random())
    if random:
        restore_random(before)  # so that the losses of the halves draw the same
    tolerance = TOLERANCES[trial.precision]
    found = _halved(trial, whole, parts, tolerance)
    if found.verdict == "additive":
        return found
    if not all(math.isfinite(part.sum) for part in (whole, *found.halves)):
        return replace(found, verdict="not judged", why="it is not a finite number")
    if random:
        return _judge_random(trial, indices, parts, found, "the model or the loss draws random numbers in eval mode")
    if not math.isclose(trial.value(indices).sum, whole.sum, rel_tol=tolerance):
        return _judge_random(trial, indices, parts, found, "the loss of the same batch differs from call to call")
    padded = found.verdict != "mean" and _padding(trial, indices, parts)
    if padded:
        equal = _equally_padded(trial, indices)
        if equal is None:
            return replace(found, verdict="not judged", why="its halves are padded to other lengths")
        found = _again(trial, *equal, TOLERANCES[trial.precision])
        if found.verdict == "additive":
            return replace(found, verdict="additive", why="padding changes it")
        indices, parts = equal
    exact = _in_float64(trial, indices, parts, sure=found.deviation > 10 * tolerance) or found
    return (
        replace(exact, verdict="additive", why="padding changes it")
        if padded and exact.verdict == "additive"
        else exact
    )


def _again(trial: Trial, indices: Sequence[int], parts: list[list[int]], tolerance: float) -> Additivity:
    found = _halved(trial, trial.value(indices), parts, tolerance)
    return replace(found, per_batch=_per_batch(trial, indices, found)) if found.verdict == "coupled" else found


def _in_float64(trial: Trial, indices: Sequence[int], parts: list[list[int]], *, sure: bool) -> Additivity | None:
    """The verdict without rounding; None if the model cannot compute in float64 and the deviation is `sure` anyway."""
    try:
        with _widened(trial) as exact:
            return _again(exact, indices, parts, EXACT)
    except Exception:  # noqa: BLE001  # float32 constants in the model or the loss, operations without float64
        if sure:
            return None
        found = _again(trial, indices, parts, TOLERANCES[trial.precision])
        return replace(found, verdict="not judged", why="the deviation may be rounding")


def _halved(trial: Trial, whole: Part, parts: list[list[int]], tolerance: float) -> Additivity:
    """The loss of a batch against those of its halves."""
    first, second = halves = (trial.value(parts[0]), trial.value(parts[1]))
    scale = max(abs(first.sum) + abs(second.sum), abs(whole.sum))
    deviation = abs(whole.sum - first.sum - second.sum) / scale if scale else 0.0
    counts_add = math.isclose(whole.count, first.count + second.count, rel_tol=max(tolerance, 1e-4))
    # A loss that is the same for every batch is a mean, too; it may be a term of the batch as a whole.
    weights = ((first.count, second.count), (len(parts[0]), len(parts[1])))
    verdict: Verdict
    if deviation <= tolerance:
        verdict = "additive" if counts_add else "count"
    elif is_weighted_mean(whole.sum, (first.sum, second.sum), weights, tolerance * scale):
        verdict = "mean"
    else:
        verdict = "coupled"
    return Additivity(verdict, deviation, whole, halves)


def is_weighted_mean(
    whole: float, halves: tuple[float, float], weights: Iterable[tuple[float, float]], tolerance: float
) -> bool:
    """Whether `whole` is the mean of its halves, by one of the pairs of weights.

    Args:
        whole: of a batch.
        halves: of its halves.
        weights: what it may be a mean over: the counts, or the samples where the count is something else.
        tolerance: absolute.
    """
    return any(a + b and abs((halves[0] * a + halves[1] * b) / (a + b) - whole) <= tolerance for a, b in weights)


def _judge_random(
    trial: Trial, indices: Sequence[int], parts: list[list[int]], found: Additivity, why: str
) -> Additivity:
    """Of a loss that draws random numbers only a mean can be told, by the ratio of many draws."""
    ratios = []
    for _ in range(_REPEATS):
        whole = trial.value(indices).sum
        ratios.append(sum(trial.value(part).sum for part in parts) / whole if whole else math.nan)
    sure = all(math.isfinite(ratio) and ratio > _MEAN_LOW for ratio in ratios) and median(ratios) < _MEAN_HIGH
    if sure and len(indices) % 2 == 0:
        return replace(found, verdict="mean")
    return replace(found, verdict="not judged", why=why)


def _per_batch(trial: Trial, indices: Sequence[int], found: Additivity) -> float:
    """R, where the loss is a sum over samples + R once a batch: quarters then deviate by 3 R, and halves by R."""
    if len(indices) < 4:
        return 0.0
    quarters = [indices[len(indices) * k // 4 : len(indices) * (k + 1) // 4] for k in range(4)]
    by_quarters = sum(trial.value(quarter).sum for quarter in quarters) - found.whole.sum
    by_halves = sum(half.sum for half in found.halves) - found.whole.sum
    return by_halves if by_halves and math.isclose(by_quarters, 3 * by_halves, rel_tol=1e-3) else 0.0


def _shapes(batch: Any) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) for leaf in _pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]


def _padding(trial: Trial, indices: Sequence[int], parts: list[list[int]]) -> bool:
    """Whether a half is padded less than the batch: one of its dimensions is smaller, and the other half's is not."""
    whole, first, second = (_shapes(trial.rows(part)) for part in (indices, *parts))
    if not len(whole) == len(first) == len(second):
        return False
    for shapes in zip(whole, first, second, strict=True):
        if len({len(shape) for shape in shapes}) > 1:
            continue
        for all_, one, other in zip(*shapes, strict=True):
            if one != other and all_ == max(one, other):
                return True
    return False


def _equally_padded(trial: Trial, indices: Sequence[int]) -> tuple[list[int], list[list[int]]] | None:
    """Samples whose halves are padded alike: the longest of each tensor and dimension are in both."""
    singles = {index: _shapes(trial.rows([index])) for index in dict.fromkeys(indices)}
    if len({tuple(map(len, shapes)) for shapes in singles.values()}) > 1:
        return None
    layout = next(iter(singles.values()))
    places = [(leaf, dimension) for leaf, shape in enumerate(layout) for dimension in range(len(shape))]
    longest = {max(singles, key=lambda index: singles[index][leaf][dimension]) for leaf, dimension in places}
    rest = [index for index in singles if index not in longest]
    middle = len(rest) // 2
    parts = [[*longest, *rest[:middle]], [*longest, *rest[middle:]]]
    both = [*parts[0], *parts[1]]
    return None if _padding(trial, both, parts) else (both, parts)


@contextmanager
def _widened(trial: Trial) -> Iterator[Trial]:
    """The same trial in float64, without autocast."""
    device = next(trial.model.parameters()).device
    exact = Like(device, torch.float64, channels_last=False)
    model = copy.deepcopy(trial.model).double()
    with torch.autocast(device.type, enabled=False):
        yield Trial(model, trial.loss, nullcontext, lambda indices: to_device(trial.rows(indices), exact), "fp64")


_SLIPS = (TypeError, AttributeError, NameError, ImportError)
"""Errors of `Gathered.finish` that more rows would not help against; others may come from a batch with few classes."""
_METRIC_TOLERANCE = 1e-3
"""Relative deviation of a metric that is put down to rounding."""


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
        near = _METRIC_TOLERANCE * (abs(a) + abs(b))

        def close(one: float, other: float) -> bool:
            return math.isclose(one, other, rel_tol=_METRIC_TOLERANCE, abs_tol=near)

        if close(whole, a + b) and math.isclose(count, a_count + b_count, rel_tol=_METRIC_TOLERANCE, abs_tol=1e-9):
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
