"""How the data are cut into steps: which samples, how many, in which epoch. Pure functions of numbers.

The batch may grow at the start of an epoch (Smith et al. 2018, arXiv 1711.00489). Then an epoch has fewer steps, so
step and epoch are related by a table of stages instead of a division.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from paceline.parallel.partition import batch_span, rank_spans, split, steps_per_epoch
from paceline.train.schedules import Duration

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Stage:
    """From epoch `epoch` on, batches are cut so."""

    epoch: int
    global_batch: int
    accumulation: int


@dataclass(frozen=True)
class Plan:
    """Everything that decides which sample goes where.

    Attributes:
        samples: in the training set.
        global_batch: samples a step over all ranks, at the start.
        accumulation: micro-batches a rank, at the start.
        seed: of the order.
        world, rank: this rank's place.
        growth: later stages, by ascending epoch.
    """

    samples: int
    global_batch: int
    accumulation: int
    seed: int
    world: int
    rank: int
    growth: tuple[Stage, ...] = ()

    @property
    def steps_per_epoch(self) -> int:
        """Batches in the first epoch."""
        return self.steps_in(0)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, the first one included."""
        return (Stage(0, self.global_batch, self.accumulation), *self.growth)

    @cached_property
    def _epochs(self) -> list[int]:
        """The first epoch of each stage."""
        return [stage.epoch for stage in self.stages]

    @cached_property
    def _starts(self) -> list[int]:
        """The first step of each stage."""
        starts = [0]
        for before, after in zip(self.stages, self.growth, strict=False):
            starts.append(starts[-1] + (after.epoch - before.epoch) * self._steps(before))
        return starts

    def _steps(self, stage: Stage) -> int:
        return steps_per_epoch(self.samples, stage.global_batch)

    def lengths(self, steps: int) -> set[tuple[int, int]]:
        """(samples, micro-batches) of the batches that a run of `steps` steps takes."""
        found = set()
        for start, stage in zip(self._starts, self.stages, strict=True):
            last = self._steps(stage) - 1
            for index in (0, last):
                if start + index < steps:
                    found.add((len(batch_span(self.samples, stage.global_batch, index)), stage.accumulation))
        return found

    def stage(self, epoch: int) -> Stage:
        """The stage to which an epoch belongs."""
        return self.stages[bisect_right(self._epochs, epoch) - 1]

    def steps_in(self, epoch: int) -> int:
        """Batches in an epoch."""
        return self._steps(self.stage(epoch))

    def first_step(self, epoch: int) -> int:
        """Steps before an epoch."""
        number = bisect_right(self._epochs, epoch) - 1
        stage = self.stages[number]
        return self._starts[number] + (epoch - stage.epoch) * self._steps(stage)

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch and the index within it of update `step`, both 0 for the first."""
        number = bisect_right(self._starts, step) - 1
        stage = self.stages[number]
        epochs, index = divmod(step - self._starts[number], self._steps(stage))
        return stage.epoch + epochs, index

    def epochs_done(self, step: int) -> float:
        """Epochs that lie behind after `step` steps."""
        epoch, index = self.locate(step)
        return epoch + index / self.steps_in(epoch)

    def batch_size(self, epoch: int, index: int) -> int:
        """Samples of all ranks in batch `index` of an epoch."""
        return len(batch_span(self.samples, self.stage(epoch).global_batch, index))

    def leaves_ranks_idle(self, epoch: int, index: int) -> bool:
        """Whether a rank has no sample of some micro-batch that has samples; the first rank always has."""
        return self.world > 1 and _leaves_idle(
            self.batch_size(epoch, index), self.stage(epoch).accumulation, self.world
        )

    @property
    def usual_micro_batch(self) -> int:
        """Samples in this rank's first micro-batch, at least 1: a rank without any borrows one for warm-up."""
        return max(1, min(self.samples, len(self.micro_batches(0, 0)[0])))

    def micro_batches(self, epoch: int, index: int) -> list[range]:
        """This rank's positions in the epoch's order, a span each micro-batch."""
        stage = self.stage(epoch)
        whole = batch_span(self.samples, stage.global_batch, index)
        return rank_spans(whole, self.world, self.rank, stage.accumulation)


@lru_cache
def _leaves_idle(samples: int, parts: int, world: int) -> bool:
    return any(0 < len(split(samples, parts, part)) < world for part in (0, parts - 1))


@dataclass(frozen=True)
class Cadence:
    """Something that is due every so many steps or epochs."""

    every: Duration
    plan: Plan

    def due(self, step: int) -> bool:
        """Whether it is due after `step` steps, 1 or more."""
        if not self.every.in_epochs:
            return step % max(1, int(self.every.value)) == 0
        return self._times(step) > self._times(step - 1)

    def _times(self, step: int) -> int:
        return math.floor(self.plan.epochs_done(step) / self.every.value + _ROUNDING)


def lonely_batch(plan: Plan, steps: int, *, together: bool) -> int:
    """Samples of a batch of which somebody would have a single one at once; 0 when a run has no such batch.

    Args:
        plan: of any rank.
        steps: of the run.
        together: whether all ranks have the samples of a micro-batch together (synchronised batch norm).
    """
    for length, accumulation in sorted(plan.lengths(steps), reverse=True):
        # Sizes of pieces differ by one at most: the first and the last are all that there are.
        micro = {len(split(length, accumulation, part)) for part in (0, accumulation - 1)}
        parts = micro if together else {len(split(m, plan.world, rank)) for m in micro for rank in (0, plan.world - 1)}
        if 1 in parts:
            return length
    return 0


def grow(plan: Plan, epochs: int, at: Sequence[float], factor: float, most: int) -> tuple[tuple[Stage, ...], list[int]]:
    """Where the rate would drop by `factor`, let the batch grow by 1 / factor instead, as long as it is at most `most`.

    Micro-batches stay as large as they were (more of them are added up), so a device's memory does not have to grow.

    Args:
        plan: without growth.
        epochs: of the run; one is too few, since the batch grows between epochs.
        at: fractions of the run, ascending; each is moved to the nearest start of an epoch within it.
        factor: above 0 and below 1.
        most: the largest batch.

    Returns:
        the stages after the first, and the epochs at which the rate has to drop after all.
    """
    stages: list[Stage] = []
    drops: list[int] = []
    batch = plan.global_batch
    for fraction in at if epochs > 1 else ():
        epoch = min(max(1, round(fraction * epochs)), epochs - 1)
        larger = round(batch / factor)
        if not batch < larger <= most:
            drops.append(epoch)
            continue
        batch = larger
        stages = [stage for stage in stages if stage.epoch < epoch]
        stages.append(Stage(epoch, batch, plan.accumulation * math.ceil(batch / plan.global_batch)))
    return tuple(stages), drops
