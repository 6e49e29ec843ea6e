"""What is doubtful in a learning curve, in sentences for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.records.plan_results import CurvePoint, HeldOut, Needed
from paceline.stats.power_law import FAR, LearningCurve

_NOTHING = 0.01
"""A floor below this part of the smallest error is none."""


@dataclass(frozen=True)
class Checked:
    """A fit without the largest size, held against it.

    Attributes:
        held_out: what it says of the largest size, and the mean that was measured there.
        inside: whether that mean lies in the interval.
    """

    held_out: HeldOut
    inside: bool


def warnings(
    points: Sequence[CurvePoint], fitted: LearningCurve, checked: Checked | None, needed: Sequence[Needed], metric: str
) -> list[str]:
    """All that a plan has to warn of, the runs first.

    Args:
        points: of all trainings.
        fitted: the curve.
        checked: None where there were too few sizes to leave one out.
        needed: what the targets need.
        metric: what falls, for people.
    """
    about = [*_about_runs(points, metric), *_about_fit(fitted, checked), *_far(fitted, needed)]
    return about + [text for each in needed for text in _about_target(each, fitted, metric)]


def in_words(number: float, noun: str) -> str:
    """`3 runs`, `1 run`."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def _about_runs(points: Sequence[CurvePoint], metric: str) -> list[str]:
    found = []
    if lost := [point for point in points if point.error is None]:
        found.append(f"{len(lost)} of {in_words(len(points), 'training')} diverged and are left out: a smaller --lr")
    if sizes := sorted({point.samples for point in points if point.error is not None and point.error <= 0}):
        found.append(
            f"the runs on {', '.join(f'{size:,}' for size in sizes)} samples are left out of the curve: a run "
            f"at each of these sizes came to {metric} 0 or below, and errors are compared in proportion to each other"
        )
    return found


def _about_fit(fitted: LearningCurve, checked: Checked | None) -> list[str]:
    found = []
    if fitted.curve.scale == 0:
        found.append("the error does not fall with the number of samples: there is nothing to extrapolate")
    elif not fitted.follows:
        found.append(
            "the errors do not follow a power law with floor: seeds of one size agree better with each other than "
            "sizes do with the curve. Each size counts once, and intervals are as wide as that makes them"
        )
    if checked is not None and not checked.inside:
        found.append(
            f"without the largest size the curve would have predicted {checked.held_out.predicted:.4g} there, and it "
            f"is {checked.held_out.measured:.4g}, outside the interval: predictions for more data may be as far off"
        )
    return found


def _far(fitted: LearningCurve, needed: Sequence[Needed]) -> list[str]:
    if fitted.floor.low > _NOTHING * float(np.min(fitted.errors)):  # the runs prove a floor
        return []
    limit = FAR * fitted.largest
    further = [each for each in needed if each.samples.value is not None and each.samples.value > limit]
    also = ", as what a target needs does" if further else ""
    return [
        f"beyond {limit:,.0f} samples, {FAR:g} times the largest size, predictions rest on the curve's form{also}; "
        "the runs do not rule out that the error falls to 0. Larger sizes or more seeds would tell"
    ]


def _about_target(needed: Needed, fitted: LearningCurve, metric: str) -> list[str]:
    name = f"{metric} {needed.error:.4g}"
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
