"""What single changes would give: the same step without one of the things that hold it up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from paceline.plan.jitter import Jitter
from paceline.plan.refits import Predictor
from paceline.plan.step_time import Setting, StepTime
from paceline.records.plan_results import Mending
from paceline.stats.intervals import Interval


def mending(of: Predictor, setting: Setting, *, compressed: bool) -> list[Mending]:
    """What each change would give at `setting`, the most first.

    Args:
        of: the step; gains have intervals where it has refits.
        setting: at which it is looked at.
        compressed: gradients travel in 16 bits already, which cannot be done again.
    """
    tails = (1 - of.confidence) / 2, (1 + of.confidence) / 2
    found = []
    for what, changed in _CHANGES.items():
        if compressed and what == _SIXTEEN_BITS:
            continue

        def gain(model: StepTime, changed: Callable[[StepTime], StepTime] = changed) -> float:
            return model.step_s(setting) / changed(model).step_s(setting) - 1

        best, interval = gain(of.model), None
        if of.refits:
            interval = Interval.around(best, *np.quantile([gain(one) for one in of.refits], tails).tolist()).estimate
        found.append(Mending(what=what, step_s=changed(of.model).step_s(setting), gain=best, gain_interval=interval))
    return sorted(found, key=lambda one: -one.gain)


def _alone(model: StepTime) -> StepTime:
    network = replace(model.network, link=replace(model.network.link, processors=math.inf))
    coefficients = replace(model.coefficients, crowding=0.0)
    return replace(model, network=network, coefficients=coefficients, processors=None)


def _with(**changes: float) -> Callable[[StepTime], StepTime]:
    return lambda model: replace(model, coefficients=replace(model.coefficients, **changes))


def _faster(times: float) -> Callable[[StepTime], StepTime]:
    return lambda model: replace(model, network=model.network.faster(times))


_SIXTEEN_BITS = "gradients in 16 bits (--compress bf16)"
_CHANGES: dict[str, Callable[[StepTime], StepTime]] = {
    "a network twice as fast": _faster(2.0),
    _SIXTEEN_BITS: lambda model: replace(model, size_bytes=model.size_bytes / 2),
    "a sum that hides behind the backward pass altogether": _with(late=0.0),
    "no network at all": _faster(math.inf),
    "no overhead of launching": _with(floor=0.0),
    "cores and memory of its own for each worker": _alone,
    "no jitter between workers": lambda model: replace(model, jitter=Jitter()),
    "nothing besides work and network": _with(rest=0.0),
}
