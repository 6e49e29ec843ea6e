"""Where a rank stands in a hang, read from its stack and put in words: for `run`, `verify` and the course.

A process that is asked with `stack_signal` writes the stacks of its threads by faulthandler, which needs no GIL: it
answers within C code too. Innermost frames come first.
"""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec

from paceline.records.place import Place, own_places, place_in_stacks, places_in
from paceline.records.wrap import ordinal

BACKWARD, FORWARD = "backward", "forward of DDP"
"""Calls of DDP that wait for other ranks, and compute as well."""
TO_ONE = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
"""Operations that involve two ranks only."""
_WORKER_LOOP = ("_utils/worker.py", "_worker_loop")
_COMPUTES = ("torch/nn/", "torch/optim/", "torch/_dynamo/", "torch/_inductor/", "torch/_tensor", "torch/functional.py")
_STATES = {
    "ended": "has ended",
    "failed": "failed",
    "left": "has left the process group",
    "stopped": "is stopped, by SIGSTOP or a debugger",
    "blocked": "is blocked in the kernel, by a disk or a network file system",
}
_WRITES = ("torch/serialization.py", "torch/distributed/checkpoint/", "safetensors/", "shutil.py")


class RankStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a rank was when its job made no progress."""

    rank: int
    state: str
    """"waits" or "runs" (uses the processor); "stopped" or "blocked" (in the kernel); "left" (its process group),
    "failed" or "ended"."""
    call: str = ""
    """The function of `torch.distributed` or DDP in which it is."""
    path: str | None = None
    line: int | None = None
    """The user's innermost line."""
    function: str = ""
    inside: str = ""
    """The library's file and function in which that line is, where it is in none of torch.distributed."""
    worker: int | None = None
    """The line is that of this process, a loader worker for which the rank waits."""
    number: int | None = None
    """Collectives that it has called, the one in which it waits included."""
    bytes: int | None = None
    """Size of the tensors of the collective in which it waits."""

    @property
    def place(self) -> Place | None:
        """The user's innermost line."""
        if self.path is None or self.line is None:
            return None
        return Place(path=self.path, line=self.line, function=self.function)

    @property
    def waits_for_ranks(self) -> bool:
        """It waits in a call that ends when all ranks have come to it."""
        return self.state == "waits" and self.call not in ("", *TO_ONE)

    @property
    def gone(self) -> bool:
        """It comes to no further collective."""
        return self.state in ("ended", "failed", "left")

    def at(self, place: Place | None) -> RankStanding:
        """The same with another line."""
        if place is None:
            return self
        function = "" if place.function == "<module>" else place.function
        return msgspec.structs.replace(self, path=place.path, line=place.line, function=function)


def stack_signal() -> int:
    """The signal that asks a rank for its stack: a real-time one, since programs use SIGUSR1 and SIGUSR2 themselves."""
    return int(getattr(signal, "SIGRTMIN", signal.SIGUSR1)) + 3


def stack_path(folder: Path, pid: int) -> Path:
    """Where a process under `paceline run` writes its stacks."""
    return folder / f"{pid}.stacks"


def standing_in(rank: int, stack: str, *, state: str) -> RankStanding:
    """Where a rank is by its stack.

    Args:
        rank: its number.
        stack: of all its threads.
        state: as in `RankStanding`.
    """
    place, inner = _innermost(stack)
    call = _call(inner)
    if place is None:
        return RankStanding(rank=rank, state=state, call=call)
    inside = "" if call or not inner else f"{inner[0].function} of {_module(inner[0])}"
    return RankStanding(rank=rank, state=state, call=call, inside=inside).at(place)


def worker_place(stack: str) -> Place | None:
    """The user's innermost line in the stack of a loader worker; None while it waits for work.

    A forked worker also has the frames of the rank that forked it, further out.
    """
    for thread in stack.split("(most recent call first):"):
        frames = places_in(thread)
        for number, frame in enumerate(frames):
            if frame.path.endswith(_WORKER_LOOP[0]) and frame.function == _WORKER_LOOP[1]:
                own = own_places(frames[:number])
                return own[0] if own else None
    return None


def works(stack: str) -> bool:
    """Return True if the user's line computes in torch or writes a file: the rank may only be slow."""
    _, inner = _innermost(stack)
    return _call(inner) == BACKWARD or any(part in each.path for each in inner for part in (*_COMPUTES, *_WRITES))


def standing_text(one: RankStanding, root: Path | None = None) -> str:
    """In words: "waits in all_reduce of 16 bytes, its 4th collective, at train.py:42, in step".

    Args:
        one: rank.
        root: paths below it are shown relative to it.
    """
    count = "" if one.number is None else f"{one.number:,} collective{'' if one.number == 1 else 's'}"
    place = one.place
    if place is not None and root is not None:
        place = place.below(root)
    at = "" if place is None else f"at {place}"
    parts = []
    if one.state in _STATES:
        within = f" in {one.call}" if one.call else ""
        parts.append(_STATES[one.state] + within)
        at = f"after {count}" if one.gone and count and not at else at
    elif one.call:
        size = f" of {one.bytes:,} bytes" if one.bytes is not None else ""
        parts.append(f"{'waits' if one.state == 'waits' else 'computes'} in {one.call}{size}")
        if one.bytes is not None and one.number is not None:
            parts.append(f"its {ordinal(one.number)} collective")
    elif one.worker is not None:
        parts.append(f"waits for loader worker {one.worker}")
    elif one.inside and one.state == "waits":
        parts.append(f"waits in {one.inside}")
    elif count:
        parts.append(f"has called {count}")
    if at:
        parts.append(at if parts else f"{'computes' if one.state == 'runs' else 'is'} {at}")
    return ", ".join(parts) or ("computes" if one.state == "runs" else "waits at an unknown place")


def _innermost(stack: str) -> tuple[Place | None, list[Place]]:
    """The user's innermost line, and the frames of libraries below it, innermost first."""
    place = place_in_stacks(stack)
    if place is None:
        return None, []
    for thread in stack.split("(most recent call first):"):
        frames = places_in(thread)
        if place in frames:
            return place, frames[: frames.index(place)]
    return place, []


def _module(frame: Place) -> str:
    path = Path(frame.path)
    return path.parent.name if path.name == "__init__.py" else path.stem


def _call(inner: list[Place]) -> str:
    """The function of torch through which the user's line waits for other ranks; empty if unknown."""
    call = ""
    for number, frame in enumerate(inner):
        if frame.path.endswith("distributed/distributed_c10d.py") or "_functional_collectives" in frame.path:
            call = frame.function
        elif frame.path.endswith("nn/parallel/distributed.py"):
            within = any("torch/nn/modules/" in each.path for each in inner[:number])
            if frame.function == "__init__":
                call = "DistributedDataParallel()"
            elif call or not within:  # else it computes the model's own forward pass
                call = FORWARD
        elif frame.function == "_engine_run_backward":
            call = BACKWARD
    return call
