"""What single changes would give: the same step without one of the things that hold it up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paceline.plan.collectives import Network
from paceline.plan.jitter import Jitter
from paceline.plan.step_time import Setting, StepTime
from paceline.records.plan_results import Mending, estimate


def mending(
    model: StepTime, refits: Sequence[StepTime], setting: Setting, confidence: float, *, compressed: bool
) -> list[Mending]:
    """What each change would give at `setting`, the most first.

    Args:
        model: of the step.
        refits: of it; they make the intervals of gains.
        setting: at which it is looked at.
        confidence: of intervals, between 0 and 1.
        compressed: gradients travel in 16 bits already, which cannot be done again.
    """
    now, drawn = model.step_s(setting), [one.step_s(setting) for one in refits]
    found = []
    for what, changed in _CHANGES.items():
        if compressed and what == _SIXTEEN_BITS:
            continue
        time = changed(model).step_s(setting)
        gain, interval = now / time - 1, None
        if refits:
            gains = [before / changed(one).step_s(setting) - 1 for before, one in zip(drawn, refits, strict=True)]
            low, high = np.quantile(gains, [(1 - confidence) / 2, (1 + confidence) / 2])
            interval = estimate(gain, min(gain, float(low)), max(gain, float(high)))
        found.append(Mending(what=what, step_s=time, gain=gain, gain_interval=interval))
    return sorted(found, key=lambda one: -one.gain)


def _alone(model: StepTime) -> StepTime:
    served = replace(model.network, link=replace(model.network.link, processors=math.inf))
    return replace(model.on(served), coefficients=replace(model.coefficients, crowding=0.0), processors=None)


def _with(**changes: float) -> Callable[[StepTime], StepTime]:
    return lambda model: replace(model, coefficients=replace(model.coefficients, **changes))


def _faster(network: Network, times: float) -> Network:
    outer = network.outer.faster(times) if network.outer else None
    return replace(network, link=network.link.faster(times), outer=outer)


_SIXTEEN_BITS = "gradients in 16 bits (--compress bf16)"
_CHANGES: dict[str, Callable[[StepTime], StepTime]] = {
    "a network twice as fast": lambda model: model.on(_faster(model.network, 2.0)),
    _SIXTEEN_BITS: lambda model: replace(model, size_bytes=model.size_bytes / 2),
    "a sum that hides behind the backward pass altogether": _with(late=0.0),
    "no network at all": lambda model: model.on(_faster(model.network, math.inf)),
    "no overhead of launching": _with(floor=0.0),
    "cores and memory of its own for each worker": _alone,
    "no jitter between workers": lambda model: replace(model, jitter=Jitter(np.empty(0))),
    "nothing besides work and network": _with(rest=0.0),
}
