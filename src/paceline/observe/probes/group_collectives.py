"""All collectives of process groups, with those that DDP issues in C++: bytes, call site, completion.

It uses `ProcessGroup.register_pre_hook` and `register_post_hook` (torch 2.14 and newer), which fire inside the
dispatcher and change no bit, as a DDP communication hook would (docs/decisions/0013). It walks the stack at every call,
which is too expensive for `paceline run`: there, `ScriptCollectives` observes. With an `ImmediateSink`, the file of a
process that hangs or is killed ends with the call that it hangs in.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from paceline.observe.call_site import user_place_and_backward
from paceline.observe.session import Probe, Session
from paceline.records.observed import Collective, CollectiveDone

_OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCE_SCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}
"""Names of the hooks' operations that are not just written in lower case."""
_HOOK_ID = 0x9ACE


class GroupCollectives(Probe):
    """Observes all process groups, those that are made later as well; one at a time can do so."""

    signal = "collectives of process groups"
    requires = (
        (dist.ProcessGroup, "register_pre_hook"),
        (dist.ProcessGroup, "register_post_hook"),
        (c10d, "_new_process_group_helper"),
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()  # completions come from threads of the backend
        self._issued = 0
        self._issuing: dict[tuple[str, int], int] = {}
        self._known: set[int] = set()

    def arm(self, session: Session) -> None:
        """Hook on to the groups that exist, and to others as they are made."""
        self._session = session
        for group in list(c10d._world.pg_map):
            self._observe(group)
        session.patch(
            self,
            c10d,
            "_new_process_group_helper",
            after=lambda made, *_: self._observe(made[0] if isinstance(made, tuple) else made),
        )

    def _observe(self, group: Any) -> None:
        if not isinstance(group, dist.ProcessGroup) or id(group) in self._known:
            return  # a rank that is no member of a new group gets a marker instead
        name, size, session = str(group.group_name), group.size(), self._session
        group.register_pre_hook(_HOOK_ID, lambda call: session.run(self, self._before, call, name, size))
        group.register_post_hook(_HOOK_ID, lambda call: session.run(self, self._after, call, name))
        session.undo(self, functools.partial(self._leave, group))  # which keeps the group, so that its id stays its own
        self._known.add(id(group))

    def _leave(self, group: Any) -> None:
        if self._session.on:  # given up, perhaps from within a hook: the dispatcher does not survive its removal there
            return
        group.unregister_pre_hook(_HOOK_ID)
        group.unregister_post_hook(_HOOK_ID)
        with self._lock:  # a completion is being written, perhaps; the sink may be closed next
            return

    def _before(self, call: Any, name: str, size: int) -> None:
        word = str(call.name).rpartition(".")[2]
        tensors = call.input_tensors or call.output_tensors
        place, in_backward = user_place_and_backward()
        with self._lock:
            self._issued += 1
            self._issuing[name, call.op_id] = self._issued
            self._session.emit(
                Collective(
                    seq=self._issued,
                    op=_OPERATIONS.get(word, word.lower()),
                    bytes=sum(tensor.nbytes for tensor in tensors),
                    dtype=str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
                    group=name,
                    size=size,
                    root=call.root if call.root >= 0 else None,
                    place=place,
                    by_backward=in_backward,
                    issued_s=time.monotonic(),
                )
            )

    def _after(self, call: Any, name: str) -> None:
        with self._lock:
            seq = self._issuing.pop((name, call.op_id), 0)
        if seq == 0 or call.work is None:
            return
        try:
            future = call.work.get_future()
        except RuntimeError:  # sends and receives over gloo have none: when they are complete is not known
            return
        future.add_done_callback(lambda _: self._session.run(self, self._done, seq))

    def _done(self, seq: int) -> None:
        now = time.monotonic()
        with self._lock:
            if self._session.on:
                self._session.emit(CollectiveDone(seq=seq, done_s=now))
