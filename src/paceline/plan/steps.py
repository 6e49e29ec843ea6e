"""How many steps a batch takes to a target: from runs that met it, or as a guess from the noise of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.plan.rows import Reached
from paceline.records.errors import PacelineError
from paceline.records.plan import Estimate, estimate
from paceline.stats import goodput
from paceline.stats.hyperbola import Hyperbola
from paceline.stats.noise_scale import Window


@dataclass(frozen=True)
class Steps:
    """How many steps a batch takes to the target.

    Attributes:
        source: `hyperbola`, or `noise` for a guess from one run.
        base: the smallest batch that was measured.
    """

    source: str
    base: float
    hyperbola: Hyperbola | None = None
    windows: tuple[Window, ...] = ()
    base_steps: float = 0.0

    def at(self, batch: float) -> Estimate:
        """Steps at `batch`."""
        if self.hyperbola is not None:
            found = self.hyperbola.steps_interval(batch)
            return estimate(found.value, found.low, found.high)
        return self._guess(batch)

    def efficiency(self, batch: float) -> float:
        """Progress of a sample at `batch`, in samples at the base batch."""
        if self.hyperbola is not None:
            return self.hyperbola.efficiency(batch, self.base)
        steps = self._guess(batch).value
        return self.base * self.base_steps / (batch * steps) if steps else 0.0

    def _guess(self, batch: float) -> Estimate:
        """The run's own steps, each stretch of it shortened by what its noise scale says; between linear scaling and
        none, which are the ends of the interval: a noise scale is no more than an indication."""
        total = sum(window.last - window.first + 1 for window in self.windows)
        steps = sum(
            self.base_steps
            * (window.last - window.first + 1)
            / total
            / goodput.gain(window.found.value, self.base, batch)
            for window in self.windows
        )
        ends = sorted((self.base_steps * self.base / batch, self.base_steps))
        return estimate(steps, *ends)


@dataclass(frozen=True)
class Sweep:
    """Runs to a target, sorted out.

    Attributes:
        reached: those that met it.
        censored: those that did not.
    """

    reached: list[Reached]
    censored: list[Reached]


def sort_out(found: Sequence[Reached], least_batches: int) -> Sweep:
    """Runs that met the target, and those that did not, of which a batch with any is left out of the fit.

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
    return Sweep(kept, [one for one in found if one.steps is None])


def steps_of_run(windows: Sequence[Window], base: float, steps: float) -> Steps:
    """From the noise of one run.

    Args:
        windows: of its noise scale.
        base: its batch.
        steps: that it took.

    Raises:
        PacelineError: no norms were recorded, or by one group of samples a step only.
    """
    if not windows:
        raise PacelineError(
            "the run recorded no noise of its gradients",
            why="that takes two groups of samples a step, and some 200 steps at the usual --noise-every 10",
            hint="train with --workers 2, or --accumulate 2; --noise-every 1 records every step",
        )
    return Steps("noise", base, windows=tuple(windows), base_steps=steps)


def at_most_data(windows: Sequence[Window]) -> list[Window]:
    """Windows whose noise scale is as large as the data set count as that large, and no more."""
    found = []
    for window in windows:
        most = window.found.samples
        if most is not None and window.found.value > most:
            window = replace(window, found=replace(window.found, value=float(most)))
        found.append(window)
    return found
