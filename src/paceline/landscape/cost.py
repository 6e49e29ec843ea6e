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


@dataclass(frozen=True)
class Extent:
    """How large a measurement is, besides its settings.

    Attributes:
        samples, curvature_samples: as they came out.
        checkpoints: of the run's path; 0 where none is asked for.
        world: ranks. Slices share out points, curvature shares out chunks of samples.
    """

    samples: int
    curvature_samples: int
    checkpoints: int
    world: int


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


def cost(config: LandscapeConfig, pace: Pace, extent: Extent) -> dict[str, float]:
    """Seconds for each measure on this machine as it is now; an upper bound for what may converge earlier.

    Args:
        config: what is asked for.
        pace: seconds a sample.
        extent: on how much.
    """
    found = {}
    for name in config.measures:
        count, kind = passes(config, extent.checkpoints)[name]
        curvature = MEASURES[name].curvature
        samples = extent.curvature_samples if curvature else extent.samples
        shares = -(-samples // config.chunk) if curvature else count
        one = pace.value if kind == "value" else pace.product
        found[name] = count * samples * one / max(1, min(extent.world, shares))
    return found


def cost_lines(config: LandscapeConfig, pace: Pace, extent: Extent) -> list[str]:
    """One line a measure, and the sum; arguments as those of `cost`."""
    lines = []
    seconds = cost(config, pace, extent)
    for name in config.measures:
        count, kind = passes(config, extent.checkpoints)[name]
        what = {"value": "passes", "product": "Hessian-vector products"}[kind]
        most, samples = "", extent.samples
        if MEASURES[name].curvature:
            most, samples = "at most ", extent.curvature_samples
        lines.append(f"{name}: {most}{count:,} {what} over {samples:,} samples, about {_duration(seconds[name])}")
    workers = f"{extent.world} worker{'s' if extent.world != 1 else ''}"
    lines.append(f"cost: about {_duration(sum(seconds.values()))} on {workers}, most of it an upper bound")
    return lines


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
