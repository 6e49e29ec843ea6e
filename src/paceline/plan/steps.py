"""How many steps a batch takes to a target: from runs that met it, or as a guess from the noise of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.plan.run_noise import over_run
from paceline.records.errors import PacelineError
from paceline.records.plan_results import BatchPoint
from paceline.stats import goodput
from paceline.stats.hyperbola import Hyperbola
from paceline.stats.intervals import Interval
from paceline.stats.noise_scale import Window


@dataclass(frozen=True)
class Branched:
    """What branches of one run found.

    Attributes:
        largest: the largest batch at which they lost nothing.
        noise: the noise scale at their checkpoint, which their rates followed, with its interval.
    """

    largest: int
    noise: Interval


@dataclass(frozen=True)
class Steps:
    """How many steps a batch takes to the target.

    Attributes:
        base: the smallest batch that was measured.
        hyperbola: of runs to the target; None makes it a guess from the noise of one run.
        windows: noise of the one run.
        base_steps: that it took.
        branched: what branches of the one run found; None without them.
    """

    base: float
    hyperbola: Hyperbola | None = None
    windows: tuple[Window, ...] = ()
    base_steps: float = 0.0
    branched: Branched | None = None

    def at(self, batch: float) -> Interval:
        """Steps at `batch`."""
        if self.hyperbola is not None:
            return self.hyperbola.steps(batch)
        # A noise scale only indicates: the ends are linear scaling and no gain at all. Where branches lost nothing,
        # linear scaling is what was found, at one moment of the run; what the noise says of all of it is the other end.
        settled = self.base < batch <= self._proven
        most = self._guess(batch, self.base).value if settled else self.base_steps
        low, high = sorted((self.base_steps * self.base / batch, most))
        return Interval(self._guess(batch, self._proven).value, low, high)

    def efficiency(self, batch: float) -> Interval:
        """Progress of a sample at `batch`, in samples at the base batch; with the interval of the fit, or what that of
        the noise scale makes of it."""
        if self.hyperbola is not None:
            return self.hyperbola.efficiency(batch, self.base)

        def progress(steps: float) -> float:
            return self.base * self.base_steps / (batch * steps) if steps else 0.0

        found = self._guess(batch, self._proven).map(progress)
        if self.base < batch <= self._proven:  # branches lost nothing, at one moment of the run
            return Interval.around(found.value, self._guess(batch, self.base).map(progress).low, found.high)
        return found

    def gain(self, batch: float) -> Interval:
        """Progress of a step at `batch` that a rate is to follow, in steps at the base batch. Where branches settled
        it, what the noise said at their checkpoint, since that is what they were trained with."""
        if self.branched is not None:
            return self.branched.noise.map(lambda noise: goodput.gain(noise, self.base, batch))
        return self.efficiency(batch).map(lambda efficiency: efficiency * batch / self.base)

    @property
    def _proven(self) -> float:
        return max(self.base, self.branched.largest if self.branched is not None else 0.0)

    def _guess(self, batch: float, proven: float) -> Interval:
        """The run's own steps, with linear scaling up to the batch `proven`; beyond, shortened by what its noise scale
        says."""
        start = max(self.base, min(batch, proven))
        steps = self.base_steps * self.base / start
        return over_run(self.windows, start).map(lambda noise: steps / goodput.gain(noise, start, batch))


def usable(found: Sequence[BatchPoint], least_batches: int) -> list[BatchPoint]:
    """Runs at the batch sizes at which every seed met the target.

    A batch size at which some seeds failed would look faster than it is if only the others counted.

    Raises:
        PacelineError: fewer than `least_batches` sizes are left.
    """
    failed = sorted({one.batch for one in found if one.steps is None})
    kept = [one for one in found if one.batch not in failed]
    sizes = len({one.batch for one in kept})
    if sizes < least_batches:
        raise PacelineError(
            f"{sizes} batch sizes met the target with every seed, and {least_batches} are needed",
            why=f"runs at {', '.join(map(str, failed))} did not" if failed else "there are too few",
            hint="a lower --target, more --epochs, or more batch sizes",
        )
    return kept


def steps_of_run(windows: Sequence[Window], base: float, steps: float, branched: Branched | None = None) -> Steps:
    """From the noise of one run.

    Args:
        windows: of its noise scale.
        base: its batch.
        steps: that it took.
        branched: what its branches found.

    Raises:
        PacelineError: no norms were recorded, or by one group of samples a step only.
    """
    if not windows:
        raise PacelineError(
            "the run recorded no noise of its gradients",
            why="that takes two groups of samples a step, and some 200 steps at the usual --noise-every 10",
            hint="train with --workers 2, or --accumulate 2; --noise-every 1 records every step",
        )
    return Steps(base, windows=tuple(windows), base_steps=steps, branched=branched)


def at_most_data(windows: Sequence[Window]) -> list[Window]:
    """Windows whose noise scale is as large as the data set count as that large, and no more."""
    found = []
    for window in windows:
        most = window.found.samples
        if most is not None and window.found.value > most:
            window = replace(window, found=replace(window.found, value=float(most)))
        found.append(window)
    return found


def until(windows: Sequence[Window], step: float) -> list[Window]:
    """Windows of the run up to `step`; that in which it lies ends there."""
    before = [replace(window, last=min(window.last, math.ceil(step))) for window in windows if window.first <= step]
    return before or list(windows[:1])
