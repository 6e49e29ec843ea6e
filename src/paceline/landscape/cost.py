"""The cost of a measurement, estimated before it begins: passes over samples, and the time of each on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from paceline.landscape import bounds, keskar, sam
from paceline.landscape.choices import MEASURES
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.session import Session

_GRADIENT = 3
"""A gradient in units of a value: forward, and a backward of about twice its work."""


@dataclass(frozen=True)
class Pace:
    """What one unit of work costs on this rank, in seconds.

    Attributes:
        value: of the loss, a sample.
        product: of a Hessian-vector product, a sample; with one rank.
    """

    value: float
    product: float


def measure_pace(session: Session) -> Pace:
    """Time both on a few samples of the slices, on every rank at once; no rank waits for another."""
    samples = min(2 * session.config.chunk, session.slices.samples)
    few = session.fixed_loss(samples)
    point = few.point()
    few.value_alone(point)  # caches, allocator
    began = time.perf_counter()
    few.value_alone(point)
    value = (time.perf_counter() - began) / samples
    if not {"eigenvalues", "trace", "density"} & set(session.config.measures):
        return Pace(value, 4 * value)
    vector = point / max(float(point.double().norm()), 1e-12)
    float(few.hvp(point, vector)[0])  # a CUDA device computes on after the call: a number of it is there when all is
    began = time.perf_counter()
    float(few.hvp(point, vector)[0])
    spent = time.perf_counter() - began
    share = min(session.ranks.world, max(1, -(-samples // session.config.chunk)))
    return Pace(value, spent * share / samples)


def passes(config: LandscapeConfig, checkpoints: int) -> dict[str, tuple[int, str]]:
    """For each measure its most passes over the samples, and their kind: `value` or `product`.

    Left out is what is taken once for all of them: the loss and its gradient at the weights.

    Args:
        config: what is asked for.
        checkpoints: of the run's path.
    """
    line = config.points
    return {
        "trajectory": (checkpoints, "value"),
        "surface": (line * line, "value"),
        "line": (line, "value"),
        "interpolation": (line + 2 * (line // 4), "value"),
        "eigenvalues": (2 * config.steps, "product"),
        "trace": (2 * config.probes, "product"),
        "density": (config.density_probes * config.density_steps, "product"),
        "keskar": (2 * bounds.KESKAR_STARTS * keskar.MOST * _GRADIENT, "value"),
        "sam": (2 * bounds.SAM_STARTS * sam.STEPS * _GRADIENT, "value"),
    }


def cost(session: Session, pace: Pace) -> dict[str, float]:
    """Seconds for each measure on this machine as it is now; an upper bound for what may converge earlier.

    Ranks share out the points of a slice, and the chunks of samples of a curvature.
    """
    config, found = session.config, {}
    for name in config.measures:
        count, kind = passes(config, session.checkpoints)[name]
        samples = session.samples_of(name)
        shares = -(-samples // config.chunk) if MEASURES[name].curvature else count
        one = pace.value if kind == "value" else pace.product
        found[name] = count * samples * one / max(1, min(session.ranks.world, shares))
    return found


def cost_lines(session: Session, pace: Pace) -> list[str]:
    """One line a measure, and the sum."""
    lines = []
    seconds, world = cost(session, pace), session.ranks.world
    for name in session.config.measures:
        count, kind = passes(session.config, session.checkpoints)[name]
        what = {"value": "passes", "product": "Hessian-vector products"}[kind]
        number = f"{'at most ' if MEASURES[name].curvature else ''}{count:,}"
        over = f"{session.samples_of(name):,} samples"
        lines.append(f"{name}: {number} {what} over {over}, about {_duration(seconds[name])}")
    workers = f"{world} worker{'s' if world != 1 else ''}"
    lines.append(f"cost: about {_duration(sum(seconds.values()))} on {workers}, most of it an upper bound")
    return lines


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
