"""What a measurement will cost, said before it begins: units of work, and the time that each takes here."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.landscape import bounds, keskar, sam
from paceline.landscape.choices import MEASURES
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.session import Pace

_GRADIENT = 3
"""A gradient in units of a value: forward, and a backward of about twice its work."""


def work_units(config: LandscapeConfig, checkpoints: int) -> dict[str, tuple[int, int, str]]:
    """For each measure its most units, and what one costs: samples-passes of the kind `value` or `product`.

    Left out is what is taken once for all of them: the loss and its gradient at the weights.

    Args:
        config: what is asked for.
        checkpoints: of the run's path.

    Returns:
        measure -> (units, how many of `kind` one is, kind).
    """
    line = config.points
    return {
        "trajectory": (checkpoints, 1, "value"),
        "surface": (line * line, 1, "value"),
        "line": (line, 1, "value"),
        "interpolation": (line + 2 * (line // 4), 1, "value"),
        "eigenvalues": (2 * config.steps, 1, "product"),
        "trace": (2 * config.probes, 1, "product"),
        "density": (config.density_probes * config.density_steps, 1, "product"),
        "keskar": (2 * bounds.KESKAR_STARTS * keskar.MOST, _GRADIENT, "value"),
        "sam": (2 * bounds.SAM_STARTS * sam.STEPS, _GRADIENT, "value"),
    }


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


def cost(config: LandscapeConfig, pace: Pace, extent: Extent) -> dict[str, float]:
    """Seconds for each measure on this machine as it is now; an upper bound for what may converge earlier.

    Args:
        config: what is asked for.
        pace: seconds a sample.
        extent: on how much.
    """
    units = work_units(config, extent.checkpoints)
    found = {}
    for name in config.measures:
        count, each, kind = units[name]
        used = extent.curvature_samples if MEASURES[name].curvature else extent.samples
        pieces = -(-used // config.chunk) if MEASURES[name].curvature else count
        one = pace.value if kind == "value" else pace.product
        found[name] = count * each * used * one / max(1, min(extent.world, pieces))
    return found


def cost_lines(config: LandscapeConfig, pace: Pace, extent: Extent) -> list[str]:
    """One line a measure, and the sum; arguments as those of `cost`."""
    lines = []
    units = work_units(config, extent.checkpoints)
    seconds = cost(config, pace, extent)
    for name in config.measures:
        count, each, kind = units[name]
        curvature = MEASURES[name].curvature
        what = {"value": "passes", "product": "Hessian-vector products"}[kind]
        number = f"{'at most ' if curvature else ''}{count * each:,}"
        over = extent.curvature_samples if curvature else extent.samples
        lines.append(f"{name}: {number} {what} over {over:,} samples, about {_duration(seconds[name])}")
    workers = f"{extent.world} worker{'s' if extent.world != 1 else ''}"
    lines.append(f"cost: about {_duration(sum(seconds.values()))} on {workers}, most of it an upper bound")
    return lines


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
