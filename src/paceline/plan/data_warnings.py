"""What is doubtful in a learning curve, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from paceline.records.plan_results import CurvePoint, Needed
from paceline.stats.power_law import FAR, LearningCurve

_NOTHING = 0.01
"""A floor below this part of the smallest error is none."""


def in_words(number: float, noun: str) -> str:
    """`3 runs`, `1 run`."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def warnings(
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
        yield f"{len(lost)} of {in_words(len(points), 'training')} diverged and are left out: a smaller --lr"
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
