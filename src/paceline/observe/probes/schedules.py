"""Learning-rate schedulers: for how many steps they were made, and how often they step."""

from __future__ import annotations

from typing import Any

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from paceline.observe.call_site import user_place
from paceline.observe.session import Probe, Session
from paceline.records.observed_rank import SchedulerSeen

_HORIZONS = ("total_steps", "T_max", "total_iters")


class Schedules(Probe):
    """Patches the schedulers' constructor, and counts the steps of all."""

    signal = "schedulers"
    requires = ((LRScheduler, "step"),)

    def arm(self, session: Session) -> None:
        """Patch the classes; `step` of a scheduler's instance is the script's or torch's own business."""
        self._session = session
        self._depth = 0
        session.patch(self, LRScheduler, "__init__", after=lambda _, args, __: self._made(args[0]))
        owners = {LRScheduler, *(each for each in vars(lr_scheduler).values() if isinstance(each, type))}
        for kind in owners:
            if issubclass(kind, LRScheduler) and "step" in vars(kind):
                session.patch(
                    self,
                    kind,
                    "step",
                    before=self._stepping,
                    after=self._stepped,
                    raised=self._stepped,
                )

    def _made(self, scheduler: Any) -> None:
        found = [getattr(scheduler, name) for name in _HORIZONS if isinstance(getattr(scheduler, name, None), int)]
        horizon = int(found[0]) if found else None
        self._session.emit(SchedulerSeen(kind=type(scheduler).__name__, horizon=horizon, place=user_place()))

    def _stepping(self, args: tuple[Any, ...], _: Any) -> None:
        self._depth += 1
        # A chain of schedulers steps its members, and a constructor steps to set the first learning rate.
        if self._depth == 1 and not getattr(args[0], "_is_initial", False):
            progress = self._session.progress
            progress.scheduler_steps += 1
            progress.window.scheduler_steps += 1
            if progress.recorded:
                progress.window.scheduler_place = user_place()

    def _stepped(self, *_: Any) -> None:
        if self._depth:
            self._depth -= 1
