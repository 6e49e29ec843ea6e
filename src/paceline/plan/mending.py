"""What single changes would give: the same step without one of the things that hold it up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from paceline.plan.collectives import Network
from paceline.plan.jitter import Jitter
from paceline.plan.step_time import Setting, StepTime
from paceline.records.plan import Mending


def mending(model: StepTime, setting: Setting, *, compressed: bool) -> list[Mending]:
    """What each change would give at `setting`, the most first.

    Args:
        model: of the step.
        setting: at which it is looked at.
        compressed: gradients travel in 16 bits already, which cannot be done again.
    """
    now, of = model.step_s(setting), model.coefficients
    served = replace(model.network, link=replace(model.network.link, processors=math.inf))
    alone = replace(model.on(served), coefficients=replace(of, crowding=0.0), processors=None)
    changed = {
        "a network twice as fast": model.on(_faster(model.network, 2.0)),
        "gradients in 16 bits (--compress bf16)": replace(model, size_bytes=model.size_bytes / 2),
        "a sum that hides behind the backward pass altogether": replace(model, coefficients=replace(of, late=0.0)),
        "no network at all": model.on(_faster(model.network, math.inf)),
        "no overhead of launching": replace(model, coefficients=replace(of, floor=0.0)),
        "cores and memory of its own for each worker": alone,
        "no jitter between workers": replace(model, jitter=Jitter(np.empty(0))),
        "nothing besides work and network": replace(model, coefficients=replace(of, rest=0.0)),
    }
    if compressed:
        del changed["gradients in 16 bits (--compress bf16)"]
    times = {what: other.step_s(setting) for what, other in changed.items()}
    found = [Mending(what=what, step_s=time, gain=now / time - 1) for what, time in times.items()]
    return sorted(found, key=lambda one: -one.gain)


def _faster(network: Network, times: float) -> Network:
    outer = network.outer.faster(times) if network.outer else None
    return replace(network, link=network.link.faster(times), outer=outer)
