"""From trainings on parts of the data: the learning curve, what more data would give, and what a target needs.

What is predicted is a training with the same model and settings. On data larger than what was measured it is assumed to
take the same number of epochs as the largest size did, so that its computing grows in proportion to the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.plan.compute import Device, bill, pfs_days, training_flop
from paceline.records.errors import Exit, PacelineError
from paceline.records.plan import CurvePoint, DataResult, DataRow, Estimate, Evidence, HeldOut, Needed, estimate
from paceline.stats.intervals import Interval
from paceline.stats.power_law import FAR, LEAST_SIZES, LearningCurve, fit

AHEAD = (2, 4, 8)
"""Sizes that are predicted, in units of the largest that was measured."""
_NO_END = 1e100
"""So many samples that only the floor is left, if there is one."""
_NOTHING = 0.01
"""A floor below this part of the smallest error is none."""


@dataclass(frozen=True)
class Recipe:
    """How every size was trained.

    Attributes:
        batch: samples a step; fewer where a size has fewer.
        epochs: of the largest size.
        length: "steps", every size took the steps of the largest; "epochs", every size took its epochs.
    """

    batch: int
    epochs: float
    length: str


@dataclass(frozen=True)
class Question:
    """What is asked of the trainings.

    Attributes:
        task: its name.
        metric: "error" for one minus the accuracy, else the metric itself; it falls.
        recipe: of the trainings.
        targets: values of the metric that shall be reached, above 0.
        forward_flop: of one sample; None where it could not be counted.
        device: on which a training would be paid for; None without.
        confidence: of intervals.
    """

    task: str
    metric: str
    recipe: Recipe
    targets: Sequence[float] = ()
    forward_flop: float | None = None
    device: Device | None = None
    confidence: float = 0.9


def learn(points: Sequence[CurvePoint], question: Question) -> DataResult:
    """The plan that the trainings allow.

    Args:
        points: of all trainings, those that diverged included (error None).
        question: what is asked.

    Raises:
        PacelineError: fewer than four sizes have an error above 0.
    """
    kept = [point for point in points if point.error is not None]
    if not kept:
        raise PacelineError(
            "no training has a result", why="all of them diverged", hint="--lr, smaller", exit_code=Exit.DIVERGED
        )
    errors = [point.error for point in kept if point.error is not None]
    fitted = fit([point.samples for point in kept], errors, confidence=question.confidence)
    held_out, inside = _held_out(fitted)
    needed = [_needed(target, fitted, question) for target in question.targets]
    rows = _rows(kept, fitted, question)
    warnings = [*_about_trainings(points), *_about_fit(fitted, held_out, inside)]
    warnings += [*_far(fitted, needed), *(text for each in needed for text in _about_target(each, fitted, question))]
    return DataResult(
        task=question.task,
        metric=question.metric,
        scale=fitted.curve.scale,
        exponent=fitted.curve.exponent,
        floor=fitted.curve.floor,
        noise=fitted.noise,
        points=list(points),
        rows=rows,
        needed=needed,
        forward_flop=question.forward_flop,
        device=question.device.name if question.device is not None else "",
        warnings=warnings,
        evidence=Evidence(
            runs=[point.run for point in points],
            held_out=[held_out] if held_out is not None else [],
            confidence=question.confidence,
            notes=_notes(fitted, question),
        ),
    )


# ---- rows


def _rows(kept: Sequence[CurvePoint], fitted: LearningCurve, question: Question) -> list[DataRow]:
    repeats = _repeats(fitted)
    rows = []
    for size in sorted({point.samples for point in kept}):
        here = [point for point in kept if point.samples == size]
        used = _used(float(np.mean([point.steps for point in here])), size, question.recipe.batch)
        mean = float(np.mean([point.error for point in here if point.error is not None]))
        rows.append(_row(size, fitted.predict(size, runs=len(here)), mean, used, fitted, question))
    for times in AHEAD:
        size = round(times * fitted.largest)
        error = fitted.predict(size, runs=repeats)
        rows.append(_row(size, error, None, question.recipe.epochs * size, fitted, question))
    return rows


def _row(
    size: int, error: Interval, measured: float | None, used: float, fitted: LearningCurve, question: Question
) -> DataRow:
    cost = _cost(used, question)
    return DataRow(
        samples=size,
        error=_estimate(error),
        measured=measured,
        flop=cost.flop,
        pfs_days=pfs_days(cost.flop) if cost.flop is not None else None,
        device_hours=cost.device_hours,
        cost=cost.money,
        beyond=size / fitted.largest,
    )


def _used(steps: float, samples: int, batch: int) -> float:
    """Samples that so many steps take: the last batch of an epoch is shorter."""
    return steps * samples / math.ceil(samples / batch)


def _repeats(fitted: LearningCurve) -> int:
    """Runs of the size that has the most."""
    return int(np.unique(fitted.sizes, return_counts=True)[1].max())


@dataclass(frozen=True)
class _Cost:
    flop: float | None
    device_hours: float | None
    money: float | None


def _cost(used: float, question: Question) -> _Cost:
    """Of a training that uses so many samples, those of all epochs counted."""
    if question.forward_flop is None:
        return _Cost(None, None, None)
    flop = training_flop(question.forward_flop, used)
    if question.device is None:
        return _Cost(flop, None, None)
    paid = bill(flop, question.device, devices=1)
    return _Cost(flop, paid.device_hours, paid.cost)


def _needed(error: float, fitted: LearningCurve, question: Question) -> Needed:
    samples = fitted.needed(error)
    costs = [_cost(question.recipe.epochs * end, question) for end in (samples.value, samples.low, samples.high)]
    return Needed(
        error=error,
        samples=_estimate(samples),
        flop=_of([cost.flop for cost in costs]),
        device_hours=_of([cost.device_hours for cost in costs]),
        cost=_of([cost.money for cost in costs]),
    )


def _estimate(interval: Interval) -> Estimate:
    return estimate(interval.value, interval.low, interval.high)


def _of(ends: Sequence[float | None]) -> Estimate | None:
    known = [end for end in ends if end is not None]
    return estimate(*known) if len(known) == len(ends) else None


# ---- how far it can be trusted


def _held_out(fitted: LearningCurve) -> tuple[HeldOut | None, bool]:
    """What a fit without the largest size says of it, and whether the measured mean lies in its interval."""
    rest = fitted.sizes < fitted.largest
    if len(np.unique(fitted.sizes[rest])) < LEAST_SIZES:
        return None, True
    largest = fitted.errors[~rest]
    before = fit(fitted.sizes[rest].tolist(), fitted.errors[rest].tolist(), confidence=fitted.confidence)
    predicted = before.predict(fitted.largest, runs=len(largest))
    measured = float(largest.mean())
    what = f"{fitted.largest:,.0f} samples, {_count(len(largest), 'run')}"
    inside = predicted.low <= measured <= predicted.high
    return HeldOut(what=what, measured=measured, predicted=predicted.value), inside


def _floor_is_there(fitted: LearningCurve) -> bool:
    """Whether the runs rule out that the error falls to nothing."""
    return fitted.predict(_NO_END).low > _NOTHING * float(fitted.errors.min())


def _about_trainings(points: Sequence[CurvePoint]) -> list[str]:
    lost = [point for point in points if point.error is None]
    if not lost:
        return []
    return [f"{len(lost)} of {_count(len(points), 'training')} diverged and are left out: a smaller --lr"]


def _about_fit(fitted: LearningCurve, held_out: HeldOut | None, inside: bool) -> list[str]:
    sizes = len(np.unique(fitted.sizes))
    found = []
    if fitted.curve.scale == 0:
        found.append("the error does not fall with the number of samples: there is nothing to extrapolate")
    elif fitted.degrees == sizes - 3 < len(fitted.sizes) - 3:
        found.append(
            "the errors do not follow a power law with floor: seeds of one size agree better with each other than "
            "sizes do with the curve. Each size counts once, and intervals are as wide as that makes them"
        )
    if held_out is not None and not inside:
        found.append(
            f"without the largest size the curve would have predicted {held_out.predicted:.4g} there, and it is "
            f"{held_out.measured:.4g}, outside the interval: predictions for more data may be as far off"
        )
    return found


def _far(fitted: LearningCurve, needed: Sequence[Needed]) -> list[str]:
    if _floor_is_there(fitted):
        return []
    limit = FAR * fitted.largest
    further = [each for each in needed if each.samples.value is not None and each.samples.value > limit]
    also = ", as what a target needs does" if further else ""
    return [
        f"beyond {limit:,.0f} samples, {FAR:g} times the largest size, predictions rest on the curve's form{also}; "
        "the runs do not rule out that the error falls to 0. Larger sizes or more seeds would tell"
    ]


def _about_target(needed: Needed, fitted: LearningCurve, question: Question) -> list[str]:
    name = f"{question.metric} {needed.error:.4g}"
    if needed.samples.value is None:
        if needed.error <= fitted.curve.floor:
            return [
                f"{name} lies below the floor of the curve, {fitted.curve.floor:.4g}: no number of samples reaches it "
                "with this model and this training"
            ]
        return [f"{name} needs more samples than any data set has"]
    found = []
    if needed.samples.value <= float(fitted.sizes.min()):
        found.append(f"{name} is reached at the smallest size already: it needs so many samples or fewer")
    if needed.samples.high is None:
        found.append(f"{name} may be out of reach: the runs allow a floor above it")
    return found


def _notes(fitted: LearningCurve, question: Question) -> list[str]:
    recipe = question.recipe
    notes = [
        f"Predicted errors are of the mean over {_count(_repeats(fitted), 'run')}; a single one scatters around it by "
        f"{100 * fitted.scatter:.2g} %.",
        f"Every size took as many steps as the largest takes in {_count(recipe.epochs, 'epoch')}."
        if recipe.length == "steps"
        else f"Every size took {_count(recipe.epochs, 'epoch')}: small ones had few steps, which makes the curve "
        "steeper than more data would; --length steps is the comparison at equal training.",
        "Predictions are for the same model and settings; a larger model, which more data can feed, would do better.",
    ]
    if fitted.sizes.min() < recipe.batch:
        notes.append(f"Sizes below {recipe.batch:,} samples took smaller batches: all of their samples at each step.")
    if question.metric == "error":
        notes.append("error is one minus accuracy.")
    if question.forward_flop is not None:
        notes.append(
            f"FLOP: three times those of the forward pass ({question.forward_flop:.4g} a sample; products, "
            "convolutions and attention are counted) for each sample used. Larger data are taken to be gone through in "
            f"as many epochs as the largest size here, {recipe.epochs:g}."
        )
    else:
        notes.append("The computing of this model could not be counted.")
    if question.device is not None:
        notes.append(
            f"Device-hours: {question.device.name}. The peak has to be that of {question.device.precision}, in which "
            "the trainings here computed."
        )
    return notes


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"
