"""The tracer of collectives: every one that this process issues, in order, with its bytes and the line it came from.

    with CollectiveTrace() as trace:
        loss.backward()                     # DDP's buckets are seen too: they are issued in C++
    trace.calls                             # [Collective(seq=1, op="all_reduce", bytes=1048576, ...), ...]

It hangs on `ProcessGroup.register_pre_hook` and `register_post_hook` (torch 2.14 and newer), which fire inside the
dispatcher and change no bit, as a DDP communication hook would (docs/decisions/0013). Groups that exist are watched at
once, later ones as they are made. Older versions of torch have no such hooks: `CollectiveTrace.available()` says so.

**Nothing here reaches the watched program**: what goes wrong is kept in `trace.trouble` and ends the watching.

With a file, each call is written before it is waited for, so that a trace of a process which hangs or is killed
says which call it hangs in.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from paceline.observe.watch import Watch
from paceline.records.observed import Collective, CollectiveDone
from paceline.records.place import Place, is_library
from paceline.records.writer import EventWriter

OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCE_SCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}
"""Names of the hooks' operations that are not just written in lower case."""
_HOOK_ID = 0x9ACE


class CollectiveTrace(Watch):
    """Watches the process groups of this process; see `Watch`.

    Args:
        path: also write `Collective` and `CollectiveDone` events there, as they happen.

    Attributes:
        calls: what was issued, in order.
        done_s: when each was complete, by seq, on the clock of `Collective.issued_s`; those that are still under way
            are missing, and over gloo all sends and receives.
    """

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self.calls: list[Collective] = []
        self.done_s: dict[int, float] = {}
        self._path = path
        self._writer: EventWriter | None = None
        self._lock = threading.Lock()  # completions come from threads of the backend
        self._issuing: dict[tuple[str, int], int] = {}
        self._watched: dict[int, Any] = {}

    @staticmethod
    def available() -> bool:
        """Whether this torch tells of its collectives."""
        return hasattr(dist.ProcessGroup, "register_pre_hook")

    def start(self) -> None:
        """Watch all groups that there are, and those that will be made.

        Raises:
            RuntimeError: this torch cannot be watched.
        """
        if not self.available():
            raise RuntimeError(f"torch {torch.__version__} does not tell of its collectives: it takes 2.14 or newer")
        if self._path is not None:
            self._writer = EventWriter(self._path)
        for group in list(c10d._world.pg_map):
            self._watch(group)
        self._spy(
            c10d,
            "_new_process_group_helper",
            after=lambda made, _: self._watch(made[0] if isinstance(made, tuple) else made),
        )

    def stop(self) -> None:
        """Watch no more. What was seen stays."""
        super().stop()
        for group in self._watched.values():
            self._guarded(group.unregister_pre_hook, _HOOK_ID)
            self._guarded(group.unregister_post_hook, _HOOK_ID)
        self._watched.clear()
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _watch(self, group: Any) -> None:
        if not isinstance(group, dist.ProcessGroup) or id(group) in self._watched:
            return  # a rank that is no member of a new group gets a marker instead
        name, size = str(group.group_name), group.size()
        group.register_pre_hook(_HOOK_ID, lambda call: self._guarded(self._before, call, name, size))
        group.register_post_hook(_HOOK_ID, lambda call: self._guarded(self._after, call, name))
        self._watched[id(group)] = group

    def _before(self, call: Any, name: str, size: int) -> None:
        word = str(call.name).rpartition(".")[2]
        tensors = call.input_tensors or call.output_tensors
        place, in_backward = user_place()
        with self._lock:
            seq = len(self.calls) + 1
            event = Collective(
                seq=seq,
                op=OPERATIONS.get(word, word.lower()),
                bytes=sum(tensor.nbytes for tensor in tensors),
                dtype=str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
                group=name,
                size=size,
                root=call.root if call.root >= 0 else None,
                place=place,
                by_backward=in_backward,
                issued_s=time.monotonic(),
            )
            self.calls.append(event)
            self._issuing[name, call.op_id] = seq
            if self._writer is not None:
                self._writer.write(event)

    def _after(self, call: Any, name: str) -> None:
        with self._lock:
            seq = self._issuing.pop((name, call.op_id), 0)
        if seq == 0 or call.work is None:
            return
        try:
            future = call.work.get_future()
        except RuntimeError:  # sends and receives over gloo have none: when they are complete is not known
            return
        future.add_done_callback(lambda _: self._guarded(self._done, seq))

    def _done(self, seq: int) -> None:
        now = time.monotonic()
        with self._lock:
            self.done_s[seq] = now
            if self._writer is not None:
                self._writer.write(CollectiveDone(seq=seq, done_s=now))


_BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")
"""Where Python hands over to the autograd engine; hooks that DDP runs are called from below it."""


def user_place() -> tuple[Place | None, bool]:
    """The innermost line on the stack that is the user's own, and whether all this happens within a backward pass."""
    at: FrameType | None = sys._getframe(1)
    place: Place | None = None
    in_backward = False
    while at is not None and not (place and in_backward):
        code = at.f_code
        if place is None and not is_library(code.co_filename):
            place = Place(path=code.co_filename, line=at.f_lineno, function=code.co_name)
        in_backward |= code.co_name == _BACKWARD[1] and code.co_filename.endswith(_BACKWARD[0])
        at = at.f_back
    return place, in_backward
