"""From trainings on parts of the data: the learning curve, what more data would give, and what a target needs.

What is predicted is a training with the same model and settings. On data larger than what was measured it is assumed to
take the same number of epochs as the largest size did, so that its computing grows in proportion to the data; on fewer,
to be as long as the trainings on its size here were.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.plan.compute import Device, bill, pfs_days, training_flop
from paceline.records.errors import Exit, PacelineError
from paceline.records.plan_results import CurvePoint, DataResult, DataRow, Estimate, Evidence, HeldOut, Needed
from paceline.stats.intervals import Interval
from paceline.stats.power_law import FAR, LEAST_SIZES, LearningCurve, fit, without_largest

CONFIDENCE = 0.9
"""Of intervals."""
AHEAD = (2, 4, 8)
"""Sizes that are predicted, in units of the largest that was measured."""
_NOTHING = 0.01
"""A floor below this part of the smallest error is none."""


def _in_words(number: float, noun: str) -> str:
    """`3 runs`, `1 run`."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


@dataclass(frozen=True)
class Question:
    """What is asked of the trainings.

    Attributes:
        task: its name.
        metric: "error" for one minus the accuracy, else the metric itself; it falls.
        batch: samples a step of every training; fewer where a size has fewer.
        epochs: of the largest size.
        length: "steps", every size took the steps of the largest; "epochs", every size took its epochs.
        targets: values of the metric that shall be reached, above 0.
        forward_flop: of one sample; None where it could not be counted.
        device: on which a training would be paid for; None without.
    """

    task: str
    metric: str
    batch: int
    epochs: float
    length: str
    targets: Sequence[float] = ()
    forward_flop: float | None = None
    device: Device | None = None


def learn(points: Sequence[CurvePoint], question: Question) -> DataResult:
    """The plan that the trainings allow.

    Args:
        points: of all trainings, those that diverged included (error None). A size at which some run came to 0 or below
            stays out of the fit.
        question: what is asked.

    Raises:
        PacelineError: all diverged, or fewer than four sizes can be fitted.
    """
    usable = _usable(points, question.metric)
    errors = [point.error for point in usable if point.error is not None]
    fitted = fit([point.samples for point in usable], errors, confidence=CONFIDENCE)
    without = without_largest(fitted.sizes, fitted.errors, confidence=fitted.confidence)
    held_out = [] if without is None else [_held_out(fitted, without)]
    whole = max(point.samples for point in points)
    needed = [_needed(target, fitted, whole, question) for target in question.targets]
    return DataResult(
        task=question.task,
        metric=question.metric,
        scale=fitted.curve.scale,
        exponent=fitted.curve.exponent,
        floor=fitted.curve.floor,
        noise=fitted.noise,
        points=list(points),
        rows=_rows(usable, fitted, whole, question),
        needed=needed,
        forward_flop=question.forward_flop,
        device=question.device.name if question.device is not None else "",
        warnings=list(_warnings(points, fitted, without, needed, question.metric)),
        evidence=Evidence(
            runs=[point.run for point in points],
            held_out=held_out,
            confidence=CONFIDENCE,
            notes=list(_notes(fitted, question)),
        ),
        exponent_interval=fitted.exponent.estimate,
        floor_interval=fitted.floor.estimate,
        drift=fitted.drift,
    )


def _usable(points: Sequence[CurvePoint], metric: str) -> list[CurvePoint]:
    """Runs that a curve can be fitted to.

    A run without any error has no relative one. All runs of its size go, not it alone: those that are left would say
    that the size is worse than it is.
    """
    ended = [point for point in points if point.error is not None]
    if not ended:
        raise PacelineError(
            "no training has a result", why="all of them diverged", hint="--lr, smaller", exit_code=Exit.DIVERGED
        )
    without = {point.samples for point in ended if point.error is not None and point.error <= 0}
    usable = [point for point in ended if point.samples not in without]
    lost = {point.samples for point in points} - {point.samples for point in ended}
    if len({point.samples for point in usable}) < LEAST_SIZES and (without or lost):
        raise _too_few(usable, without, lost, metric)
    return usable


def _too_few(
    usable: Sequence[CurvePoint], without: Collection[int], lost: Collection[int], metric: str
) -> PacelineError:
    """The refusal: fewer sizes can be fitted than were trained."""
    why = [f"at {_in_words(len(lost), 'size')} all runs diverged"] if lost else []
    why += [f"at {_in_words(len(without), 'size')} a run came to {metric} 0 or below"] if without else []
    hint = "smaller --fractions, at which there still are errors" if without else "--lr, smaller"
    if without and metric == "error":
        hint = f"--resume with --metric loss needs no new training; or {hint}"
    sizes = len({point.samples for point in usable})
    return PacelineError(
        f"{_in_words(sizes, 'size')} can be fitted, and a learning curve needs {LEAST_SIZES}",
        why="; ".join(why),
        hint=hint,
        exit_code=Exit.USAGE if without else Exit.DIVERGED,
    )


# ---- rows


def _rows(usable: Sequence[CurvePoint], fitted: LearningCurve, whole: int, question: Question) -> list[DataRow]:
    repeats = _repeats(fitted)
    rows = []
    for size in sorted({point.samples for point in usable}):
        here = [point for point in usable if point.samples == size]
        used = _used(float(np.mean([point.steps for point in here])), size, question.batch)
        mean = float(np.mean([point.error for point in here if point.error is not None]))
        rows.append(_row(size, fitted.predict(size, runs=len(here)), mean, used, fitted, question))
    for times in AHEAD:
        size = round(times * fitted.largest)
        error = fitted.predict(size, runs=repeats)
        rows.append(_row(size, error, None, _used_on(size, whole, question), fitted, question))
    return rows


def _row(
    size: int, error: Interval, measured: float | None, used: float, fitted: LearningCurve, question: Question
) -> DataRow:
    cost = _cost(used, question)
    return DataRow(
        samples=size,
        error=error.estimate,
        measured=measured,
        pfs_days=pfs_days(cost["flop"]) if cost["flop"] is not None else None,
        beyond=size / fitted.largest,
        **cost,
    )


def _used(steps: float, samples: int, batch: int) -> float:
    """Samples that so many steps take: the last batch of an epoch is shorter."""
    return steps * samples / math.ceil(samples / batch)


def _repeats(fitted: LearningCurve) -> int:
    """Runs of the size that has the most."""
    return int(np.unique(fitted.sizes, return_counts=True)[1].max())


def _cost(used: float, question: Question) -> dict[str, float | None]:
    """FLOP, device-hours and cost of a training that uses so many samples, those of all epochs counted."""
    flop = hours = money = None
    if question.forward_flop is not None:
        flop = training_flop(question.forward_flop, used)
        if question.device is not None:
            paid = bill(flop, question.device, devices=1)
            hours, money = paid.device_hours, paid.cost
    return {"flop": flop, "device_hours": hours, "cost": money}


def _needed(error: float, fitted: LearningCurve, whole: int, question: Question) -> Needed:
    samples = fitted.needed(error)
    ends = (samples.value, samples.low, samples.high)
    costs = [_cost(_used_on(end, whole, question), question) for end in ends]
    return Needed(
        error=error, samples=samples.estimate, **{name: _range([cost[name] for cost in costs]) for name in costs[0]}
    )


def _used_on(size: float, whole: int, of: Question) -> float:
    """Samples that a training on `size` of them uses, all epochs counted, where `whole` is the largest size."""
    if of.length == "epochs" or size >= whole:
        return of.epochs * size
    return _used(of.epochs * math.ceil(whole / of.batch), round(size), of.batch)


def _range(costs: Sequence[float | None]) -> Estimate | None:
    """Of value, low and high; more samples may cost less, where they fill batches that were half empty."""
    known = [cost for cost in costs if cost is not None]
    return Interval.around(*known).estimate if len(known) == len(costs) else None


# ---- how far it can be trusted


def _held_out(fitted: LearningCurve, without: LearningCurve) -> HeldOut:
    measured = fitted.at_largest
    what = f"{fitted.largest:,.0f} samples, {_in_words(len(measured), 'run')}"
    predicted = without.predict(fitted.largest).value
    return HeldOut(what=what, measured=float(measured.mean()), predicted=predicted)


def _warnings(
    points: Sequence[CurvePoint],
    fitted: LearningCurve,
    without: LearningCurve | None,
    needed: Sequence[Needed],
    metric: str,
) -> Iterator[str]:
    """All that a plan has to warn of, the runs first.

    Args:
        points: of all trainings.
        fitted: the curve.
        without: a fit without the largest size; None where there were too few sizes to leave one out.
        needed: what the targets need.
        metric: what falls, for people.
    """
    if lost := [point for point in points if point.error is None]:
        yield f"{len(lost)} of {_in_words(len(points), 'training')} diverged and are left out: a smaller --lr"
    if sizes := sorted({point.samples for point in points if point.error is not None and point.error <= 0}):
        yield (
            f"the runs on {', '.join(f'{size:,}' for size in sizes)} samples are left out of the curve: a run "
            f"at each of these sizes came to {metric} 0 or below, and errors are compared in proportion to each other"
        )
    if fitted.curve.scale == 0:
        yield "the error does not fall with the number of samples: there is nothing to extrapolate"
    elif not fitted.follows:
        yield (
            "the errors do not follow a power law with floor: seeds of one size agree better with each other than "
            "sizes do with the curve. Each size counts once, and intervals are as wide as that makes them"
        )
    if without is not None:
        measured = fitted.at_largest
        predicted = without.predict(fitted.largest, runs=len(measured))
        if not predicted.low <= measured.mean() <= predicted.high:
            yield (
                f"without the largest size the curve would have predicted {predicted.value:.4g} there, and it is "
                f"{measured.mean():.4g}, outside the interval: predictions for more data may be as far off"
            )
    if fitted.floor.low <= _NOTHING * float(np.min(fitted.errors)):  # else the runs prove a floor
        limit = FAR * fitted.largest
        further = any(each.samples.value is not None and each.samples.value > limit for each in needed)
        yield (
            f"beyond {limit:,.0f} samples, {FAR:g} times the largest size, predictions rest on the curve's form"
            f"{', as what a target needs does' if further else ''}; the runs do not rule out that the error falls to "
            "0. Larger sizes or more seeds would tell"
        )
    for each in needed:
        yield from _about_target(each, fitted, metric)


def _about_target(needed: Needed, fitted: LearningCurve, metric: str) -> Iterator[str]:
    name = f"{metric} {needed.error:.4g}"
    if needed.samples.value is None:
        if needed.error <= fitted.curve.floor:
            yield (
                f"{name} lies below the floor of the curve, {fitted.curve.floor:.4g}: no number of samples reaches it "
                "with this model and this training"
            )
        else:
            yield f"{name} needs more samples than any data set has"
        return
    if needed.samples.value <= float(fitted.sizes.min()):
        yield f"{name} is reached at the smallest size already: it needs so many samples or fewer"
    if needed.samples.high is None:
        yield f"{name} may be out of reach: the runs allow a floor above it"


def _notes(fitted: LearningCurve, question: Question) -> Iterator[str]:
    yield (
        f"Predicted errors are of the mean over {_in_words(_repeats(fitted), 'run')}; a single one scatters "
        f"around it by {100 * fitted.scatter:.2g} %."
    )
    if question.length == "steps":
        yield f"Every size took as many steps as the largest takes in {_in_words(question.epochs, 'epoch')}."
    else:
        yield (
            f"Every size took {_in_words(question.epochs, 'epoch')}: small ones had few steps, which makes the curve "
            "steeper than more data would; --length steps is the comparison at equal training."
        )
    yield f"Beyond the largest size, intervals allow the formula an error of {100 * fitted.drift:.2g} % a doubling."
    yield "Predictions are for the same model and settings; a larger model, which more data can feed, would do better."
    if fitted.sizes.min() < question.batch:
        yield f"Sizes below {question.batch:,} samples took smaller batches: all of their samples at each step."
    if question.metric == "error":
        yield "error is one minus accuracy."
    if question.forward_flop is None:
        yield "The computing of this model could not be counted."
    else:
        yield (
            f"FLOP: three times those of the forward pass ({question.forward_flop:.4g} a sample; products, "
            "convolutions and attention are counted) for each sample used. Larger data are taken to be gone through in "
            f"as many epochs as the largest size here, {question.epochs:g}, fewer samples for as long as their size "
            "here."
        )
    if question.device is not None:
        yield (
            f"Device-hours: {question.device.name}. The peak has to be that of {question.device.precision}, in which "
            "the trainings here computed."
        )
