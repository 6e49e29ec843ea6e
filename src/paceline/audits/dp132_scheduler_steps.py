"""The learning-rate schedule runs at another pace than the optimizer steps.

What it finds:
    A scheduler that steps once per rank at each optimizer step, and a schedule that was made for as many times the
    steps as there are ranks.

Why it matters:
    With N ranks an epoch has 1/N of the steps. A schedule computed from the unsharded data set never reaches its end:
    the learning rate stays high. One that steps N times too often ends too early.

Repair:
    Compute the number of steps from the sharded loader, `epochs * len(loader)`, and call `scheduler.step()` once after
    each `optimizer.step()`.

Known problems:
    A run that is stopped after exactly 1/N of its epochs looks the same. Scripts with several schedulers are not
    judged.

References:
    F33. https://github.com/huggingface/accelerate/issues/2926
"""

from __future__ import annotations

import math
from collections import defaultdict

from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import count_text
from paceline.records.event import Event
from paceline.records.observed_rank import LoaderEnded, ObservedStep, SchedulerSeen, ScriptEnded, StateRestored
from paceline.records.schema import Finding

_RUN = 5
"""Consecutive steps that show it."""


class SchedulerSteps(Audit):
    """Compares steps of the scheduler with steps of the optimizer, on the lowest rank that wrote them."""

    code, name, topic = "DP132", "scheduler-steps", "schedule"
    faults = ("F33",)
    needs = ("steps", "schedulers")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._schedulers: dict[int, list[SchedulerSeen]] = defaultdict(list)
        self._steps: dict[int, list[ObservedStep]] = defaultdict(list)
        self._ended: dict[int, ScriptEnded] = {}
        self._restored: set[int] = set()
        self._whole: dict[int, bool] = {}

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, SchedulerSeen):
            self._schedulers[rank].append(event)
        elif isinstance(event, ObservedStep):
            if len(self._steps[rank]) < 50:
                self._steps[rank].append(event)
        elif isinstance(event, StateRestored):
            self._restored.add(rank)
        elif isinstance(event, LoaderEnded) and event.trained:
            self._whole[rank] = event.exhausted
        elif isinstance(event, ScriptEnded):
            self._ended[rank] = event

    def findings(self) -> list[Finding]:
        for rank, schedulers in sorted(self._schedulers.items()):
            if self.world < 2 or len(schedulers) != 1:
                continue
            found = self._too_often(rank, schedulers[0]) or self._too_long(rank, schedulers[0])
            if found is not None:
                return [found]
        return []

    def _too_often(self, rank: int, scheduler: SchedulerSeen) -> Finding | None:
        steps = _consecutive(self._steps[rank], self.world)
        ended = self._ended.get(rank)
        if steps is None or (scheduler.horizon is not None and ended is None):
            return None
        if scheduler.horizon is not None and ended is not None and ended.scheduler_steps <= scheduler.horizon * 1.02:
            return None  # made for the steps of all ranks, as Accelerate does it, or stopped early
        return self.finding(
            "warning",
            f"{scheduler.kind} steps {self.world} times at each optimizer step, as often as there are ranks: "
            f"the schedule ends after 1/{self.world} of the training",
            "call scheduler.step() once after each optimizer.step()",
            place=scheduler.place,
            rank=rank,
            step=steps.step,
            scheduler_steps=steps.scheduler_steps,
        )

    def _too_long(self, rank: int, scheduler: SchedulerSeen) -> Finding | None:
        ended, horizon = self._ended.get(rank), scheduler.horizon
        if ended is None or horizon is None or rank in self._restored or not self._whole.get(rank, True):
            return None
        stepwise = ended.step > 0 and _close(ended.scheduler_steps, ended.step)
        if not stepwise or not _close(horizon, ended.step * self.world):
            return None
        return self.finding(
            "warning",
            f"{scheduler.kind} was made for {horizon} steps, {self.world} times the {ended.step} steps that the run "
            "took: the learning rate never reaches its end",
            "compute the schedule from the sharded loader: epochs * len(loader)",
            place=scheduler.place,
            rank=rank,
            step=ended.step,
            horizon=horizon,
            scheduler_steps=ended.scheduler_steps,
        )

    def looked_at(self) -> str:
        count = max(map(len, self._schedulers.values()), default=0)
        return f"the pace of {count_text(count, 'learning-rate scheduler')}" if count else ""


def _close(number: int, to: int) -> bool:
    return math.isclose(number, to, rel_tol=0.02, abs_tol=1)


def _consecutive(steps: list[ObservedStep], times: int) -> ObservedStep | None:
    """The first of `_RUN` consecutive steps with one backward pass and so many scheduler steps."""
    run: list[ObservedStep] = []
    for step in steps:
        if step.scheduler_steps != times or step.backwards != 1:
            run = []
            continue
        run = [*run, step] if run and step.step == run[-1].step + 1 else [step]
        if len(run) >= _RUN:
            return run[0]
    return None
