"""How far off the formula of a step's time is, beyond what its numbers are known to: the error of the model itself.

Refits (refits.py) say how far the numbers of the formula are known if the formula is right. It is not quite, and an
interval without that error holds too little: of 36 settings that no fit had seen, 80 % intervals held 18. A predicted
time therefore has a further deviation, in the logarithm,

    s^2 = (0.3 n)^2 + 0.008^2 + V^2 (0.1^2 + (0.24 D_t)^2 + (0.09 D_k)^2 + (0.08 D_b)^2)

n    scatter of runs with as many workers around the fit: another run of the setting scatters likewise
V    the part of the step that is network and sharing a machine: work is known well, and it is these two whose growth
     with workers and batches the formula only approximates
D_t  doublings of the workers that take turns on a core, beyond the most that were measured
D_k  doublings of the workers beyond the most that were measured, or below the fewest
D_b  likewise of the samples a worker

and a further 0.25 where workers take turns and those of no run did: how much of a step slows down is then assumed
(a model discrepancy as of Kennedy and O'Hagan 2001, between settings, that grows with the distance of extrapolation).
The constants are about those that minimize the interval score (Gneiting and Raftery 2007) of 80 % intervals on the 98
settings of the `calibration` scenes of bench/plan_speed.py, the 0.25 is from these and its `first` scenes;
docs/studies/plan.md has the coverage. All of those workers beyond the most share 2 cores, so D_t and D_k cannot be told
apart there: that of D_k is from the error of a ring's formula, fitted up to 4 GPUs, at 6 to 64 of the traces of Sia
(Jayaram Subramanya et al. 2023), 9 to 13 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from paceline.plan.step_time import Setting, turns_of
from paceline.records.plan_results import StepParts

_NOISE = 0.3
_BASE = 0.008
_WITHIN = 0.1
_PER_DOUBLING_OF_TURNS = 0.24
_TURNS_NOT_MEASURED = 0.25
_PER_DOUBLING_OF_WORKERS = 0.09
_PER_DOUBLING_OF_SAMPLES = 0.08
_NARROWEST = 1e-12
"""Width of a normal distribution in place of none."""


@dataclass(frozen=True)
class Discrepancy:
    """The error of the formula, from where runs were measured.

    Attributes:
        noise: relative scatter of runs around the fit, by the number of workers.
        workers, micro: least and most that were measured: workers, and samples of each in a micro-batch.
        turns: most workers of a core that were measured, 1 or more.
        processors: workers that the cores of a machine compute at once; None where they take no turns.
    """

    noise: Mapping[int, float]
    workers: tuple[int, int]
    micro: tuple[float, float]
    turns: float = 1.0
    processors: float | None = None

    def deviation(self, setting: Setting, parts: StepParts) -> float:
        """Standard deviation of the logarithm of a step's time at `setting`, of which `parts` are predicted."""
        near = min(self.noise, key=lambda workers: abs(math.log(workers / setting.workers)))
        uncertain = (parts.network_s + parts.sharing_s) / parts.total_s
        turns = turns_of(setting, self.processors)
        assumed = _TURNS_NOT_MEASURED if turns > 1 >= self.turns else 0.0
        grown = math.hypot(
            _WITHIN,
            _PER_DOUBLING_OF_TURNS * _doublings(turns, (1.0, self.turns)),
            _PER_DOUBLING_OF_WORKERS * _doublings(setting.workers, self.workers),
            _PER_DOUBLING_OF_SAMPLES * _doublings(setting.micro, self.micro),
        )
        return math.hypot(_NOISE * self.noise[near], _BASE, assumed, uncertain * grown)


def _doublings(value: float, measured: tuple[float, float]) -> float:
    """How far outside of what was measured, 0 within."""
    return max(0.0, math.log2(value / measured[1]), math.log2(measured[0] / value))


def quantile_of_mixture(means: Sequence[float], deviations: Sequence[float], chance: float) -> float:
    """The quantile of a mixture of normal distributions in equal parts, found without random numbers, so that a record
    gives the same interval again.

    Args:
        means, deviations: (n,) each; a deviation may be 0.
        chance: between 0 and 1.
    """
    from scipy.optimize import brentq

    centers, widths = np.array(means), np.maximum(deviations, _NARROWEST)
    reach = 10 * widths.max()
    ends = centers.min() - reach, centers.max() + reach
    return float(brentq(lambda x: ndtr((x - centers) / widths).mean() - chance, *ends))
