"""Collectives that the script calls itself: all_reduce, all_gather, barrier and the others of torch.distributed.

DDP issues its own in C++. They are not seen here: the step clock counts them, `group_collectives` sees each.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor

from paceline.observe.call_site import user_place
from paceline.observe.group_calls import POINT_TO_POINT, GroupCalls, Signature, equal_bytes, root_of
from paceline.observe.model_registry import ModelRegistry, parameters_of
from paceline.observe.probes.backward_passes import in_backward
from paceline.observe.schedule import is_recorded
from paceline.observe.session import Probe, Session, Topic
from paceline.records.observed import Collective
from paceline.records.ring import ENTERED, LEFT

FUNCTIONS = (
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
_FIRST = 20


class _Thread(threading.local):
    """The calls of one thread: how deep they are nested, and the group of the outermost one."""

    depth = 0
    group = ""


class ScriptCollectives(Probe):
    """Patches the functions of torch.distributed."""

    signal = "collectives"
    requires = ((c10d, "all_reduce"), (c10d, "barrier"), (c10d, "broadcast"))

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._calls: Counter[Any] = Counter()
        self._groups = GroupCalls()
        self._given: dict[str, Signature] = {}
        self._thread = _Thread()
        self.count = 0
        """Calls so far."""
        self._gradients: set[int] = set()
        self._parameters: set[int] = set()
        self._known_at = (-1, -1, False)

    def arm(self, session: Session) -> None:
        """Patch all of them that this torch has."""
        self._session = session
        self._counters = session.sink.counters
        for name in FUNCTIONS:
            if hasattr(c10d, name):
                self._given[name] = Signature(getattr(c10d, name))
                session.patch(
                    self,
                    c10d,
                    name,
                    aliases=(dist,),
                    before=functools.partial(self._called, name),
                    after=lambda *_: self._returned(),
                    raised=lambda *_: self._raised(),
                )
        for name in POINT_TO_POINT:
            session.patch(self, c10d, name, aliases=(dist,), before=lambda *_: self._groups.sends())
        session.listen(self, Topic.SCRIPT_ENDS, self._ends)

    def _called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.count += 1
        thread = self._thread
        thread.depth += 1
        if thread.depth > 1:  # object collectives use others
            return
        self._counters[ENTERED] = self.count
        given = self._given[name]
        group = given.value("group", args, kwargs)
        thread.group, number = self._groups.count(group, self._session.progress.groups)
        if name == "monitored_barrier":  # which sends and receives
            self._groups.sends()
        tensors = list(_tensors([*args[:2], *kwargs.values()]))
        on = self._what(tensors)
        progress = self._session.progress
        window = progress.window
        if "reduce" in name:
            window.own_reductions += on == "gradients"
            window.own_averages += on == "parameters"
        place = user_place()
        if on == "gradients" and "reduce" in name:
            window.reduce_place = place
        self._calls[name, place] += 1
        in_any_case = progress.after_evaluation > 0
        progress.after_evaluation -= in_any_case
        calls = self._calls[name, place]
        by_number = number is not None and number != calls and is_recorded(number)  # to be compared with other ranks
        if in_any_case or calls <= _FIRST or by_number or is_recorded(calls):
            self._session.emit(
                Collective(
                    seq=self.count,
                    op=name,
                    bytes=sum(each.nbytes for each in tensors),
                    dtype=str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
                    place=place,
                    on=on,
                    group=thread.group,
                    size=self._groups.size(thread.group),
                    number=number,
                    root=None if number is None else root_of(given, args, kwargs),
                    equal_bytes=equal_bytes(name, given, args, kwargs),
                    before=None if number is None else self._groups.issued(group),
                    step=progress.step,
                    issued_s=time.monotonic(),
                )
            )

    def _returned(self) -> None:
        self._thread.depth = max(0, self._thread.depth - 1)
        if not self._thread.depth:
            self._counters[LEFT] = self.count

    def _raised(self) -> None:
        self._returned()
        self._groups.failed(self._thread.group)

    def _ends(self) -> None:
        for each in self._groups.totals(self._session.progress.groups):
            self._session.emit(each)

    def _what(self, tensors: list[Tensor]) -> str:
        """Tell if tensors are gradients, or share memory with parameters; by address, so views of them count."""
        if not tensors:
            return ""
        progress = self._session.progress
        now = (progress.step, progress.backwards, in_backward())
        if self._known_at != now:  # gradients may have moved since
            self._known_at = now
            known = [each for _, optimizer in self._models.optimizers() for each in parameters_of(optimizer)]
            known += [each for _, model in self._models.modules() for each in model.parameters()]
            self._parameters = {each.data_ptr() for each in known if each.numel()}
            self._gradients = {each.grad.data_ptr() for each in known if each.grad is not None and each.numel()}
        addresses = {each.data_ptr() for each in tensors if each.numel()}
        if addresses & self._gradients:
            return "gradients"
        return "parameters" if addresses & self._parameters else "other"


def _tensors(values: list[Any], depth: int = 0) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple) and depth < 2:
            yield from _tensors(list(value), depth + 1)
