"""One noise scale for a whole run, though it grows along the way.

At a batch B a step replaces r = (phi / B0 + 1) / (phi / B + 1) steps at the base batch B0 (stats/goodput.py). A stretch
of the run with noise scale phi_w shrinks to 1 / r_w of its steps, and with w = phi_w / (phi_w + B0), the part of the
squared gradient at B0 that is noise,

    1 / r_w = (1 - w) + w B0 / B

is linear in w. The whole run shrinks to the mean of that over its steps, so the single noise scale that gives the same
number of steps at every batch is the one with the mean w:

    phi = B0 p / (1 - p),    p = mean of w over steps

It lies far below that of the end where the noise scale grows: stretches that a larger batch hardly shortens decide.

**Its interval** comes from those of the stretches, whose estimates are independent: deviations of p from each add up in
squares (MOVER; Zou and Donner 2008, Statistics in Medicine 27).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline.records.plan_results import NoisePoint, RunNoise
from paceline.stats.intervals import Interval
from paceline.stats.noise_scale import Window

_ONE = 1 - 1e-12
"""A share of noise above this is all of it: the noise scale is infinite."""


def over_run(windows: Sequence[Window], base: float) -> Interval:
    """The noise scale that stands for all windows, with the interval that theirs make.

    Args:
        windows: one or more, each with its interval; a window counts by its steps.
        base: B0, samples.
    """
    weights = np.array([window.last - window.first + 1 for window in windows], dtype=np.float64)
    weights /= weights.sum()
    shares = [window.found.map(lambda noise: _share(noise, base)) for window in windows]
    mean = float(weights @ [share.value for share in shares])
    below = float(np.linalg.norm(weights * [share.value - share.low for share in shares]))
    above = float(np.linalg.norm(weights * [share.high - share.value for share in shares]))
    return Interval(mean, max(0.0, mean - below), min(1.0, mean + above)).map(lambda share: _scale(share, base))


def _share(noise_scale: float, base: float) -> float:
    return 1.0 if math.isinf(noise_scale) else noise_scale / (noise_scale + base)


def _scale(share: float, base: float) -> float:
    return math.inf if share > _ONE else base * share / (1 - share)


def record(windows: Sequence[Window], base: float, *, used: bool) -> RunNoise | None:
    """What a plan says of the noise of its run; None without windows.

    Args:
        windows: of the steps that count.
        base: the run's batch.
        used: the plan's steps and advice are made from it.
    """
    if not windows:
        return None
    found = over_run(windows, base)
    return RunNoise(
        first=windows[0].first,
        last=windows[-1].last,
        noise_scale=found.estimate,
        used=used,
        why=_why(windows, found),
    )


def _why(windows: Sequence[Window], found: Interval) -> str:
    """Why that of the last stretch is another, where their intervals do not touch."""
    first, last = windows[0], windows[-1]
    if len(windows) < 2 or (last.found.low <= found.high and found.low <= last.found.high):
        return ""
    if last.found.value < found.value:
        return (
            f"it fell from {first.found} over steps {first.first:,} to {first.last:,} to {last.found} over the last "
            f"stretch, steps {last.first:,} to {last.last:,}; here every step counts the same"
        )
    return (
        f"it grew from {first.found} over steps {first.first:,} to {first.last:,} to {last.found} over the last "
        f"stretch, steps {last.first:,} to {last.last:,}: gradients shrink as a training converges, their noise less. "
        "Here every step counts the same, and the early ones, which a larger batch shortens least, decide"
    )


def stretch(window: Window) -> NoisePoint:
    """A window, for the record."""
    found = window.found
    return NoisePoint(
        first=window.first,
        last=window.last,
        noise_scale=found.estimate,
        exhausts_data=found.exhausts_data,
    )
