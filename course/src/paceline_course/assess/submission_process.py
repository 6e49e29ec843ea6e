"""The other side of the box: runs a submission as a program on one rank and notes what it does. It judges nothing.

All of this stands in the submission's own process, so a submission that attacks it can falsify what it notes. What the
saved weights decide, and what is seen from outside, cannot be falsified here; course/docs/assess.md says which line
rests on what.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import multiprocessing
import os
import runpy
import signal
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.parallel.digest import digest
from paceline.pool.mount_view import adopt_orphans
from paceline_course.answer_process import load_file, traced
from paceline_course.assess.kit import EVAL_SEED, GIVEN

SEEN = "seen"
"""Folder of what is noted, beside the program."""
TRAIN, EVALUATE, OTHER = 0, 1, 2
_SHOWN, _MOST_STEPS = 16, 4096


@dataclass(frozen=True)
class Start:
    """How the program is started on every rank, and what happens to it there.

    Attributes:
        arguments: of its command line.
        alone: as `python train.py`, without anything of torchrun's in the environment.
        kill: (rank, reads): that rank is killed when it has read so many training samples; None for no kill.
        jump: (rank, reads, seconds): the clocks of that rank jump ahead when it has read so many training samples.
        slow: (rank, seconds): that rank waits so long before each reading of training samples.
        steps: note the weights after every step, which takes time.
    """

    arguments: tuple[str, ...]
    alone: bool = False
    kill: tuple[int, int] | None = None
    jump: tuple[int, int, float] | None = None
    slow: tuple[int, float] | None = None
    steps: bool = True


def run_program(start: Start) -> dict[str, Any]:
    """Run train.py of the working directory as torchrun would; runs on a rank, confined.

    Raises:
        SystemExit: it ended with another exit code than 0.
    """
    here, rank = Path.cwd(), int(os.environ["RANK"])
    if start.alone:
        for name in [name for name in os.environ if name.startswith(_OF_TORCHRUN)]:
            del os.environ[name]
    adopt_orphans()
    sys.argv = ["train.py", *start.arguments]
    for name in GIVEN:  # by their paths: a folder of the same name beside them would go before
        load_file(here / name, name.removesuffix(".py"))
    sys.path.insert(0, str(here))
    # All ranks would write the bytecode of the same module; a variable comes too late for a rank, which is forked.
    sys.dont_write_bytecode = True
    seen = here / SEEN
    seen.mkdir(exist_ok=True)
    steps = _Steps(seen / f"steps-{rank}.txt") if start.steps else None
    with contextlib.ExitStack() as stack:
        if not GroupCollectives.missing():
            stack.enter_context(traced(seen / f"trace-{rank}.jsonl"))
        stack.enter_context(_writes_noted(here, seen / f"writes-{rank}.txt"))
        stack.enter_context(_Reads(start, rank, seen / f"reads-{rank}.bin").watching())
        if steps is not None:
            stack.enter_context(steps.watching())
        try:
            with _leaving():
                atexit._clear()  # of the server that the rank was forked from
                _run_to_the_end(here / "train.py")
        except _Left as end:
            if end.code:
                raise SystemExit(end.code) from None
    return {
        "in_group": bool(dist.is_initialized()),
        "first": steps.first if steps is not None else [],
        "trouble": steps.trouble if steps is not None else "",
        "steps": max(steps.made.values(), default=0) if steps is not None else 0,
        "left": _left_behind(),
    }


def _run_to_the_end(program: Path) -> None:
    """Run it, and then what Python itself does at the end of a program: wait for its threads, call its exit functions.

    A rank goes on and leaves in another way, so a file that a thread is still writing would be missing.

    Raises:
        SystemExit: it ended with another exit code than 0.
    """
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _left_behind(wait_s: float = 0.5) -> int:
    """How many processes below this one go on by themselves; not those of multiprocessing, which end with it."""
    until = time.monotonic() + wait_s
    while (left := _running_children()) and time.monotonic() < until:
        time.sleep(0.05)
    return len(left)


def _running_children() -> set[int]:
    known = {child.pid for child in multiprocessing.active_children()}
    known.add(getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None))
    known.add(getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None))
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(stat.parent.name))
    return found - known


_OF_TORCHRUN = ("RANK", "LOCAL_", "WORLD_SIZE", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")


class _Left(BaseException):
    """The program called os._exit, as those do who fear gloo's destructors."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    """os._exit of the program's own process ends the program, not the rank, which still has something to say."""
    before, rank_pid = os._exit, os.getpid()

    def leave(code: int) -> None:
        if os.getpid() != rank_pid:
            before(code)  # a loader's worker, or another child
        raise _Left(code)

    os._exit = leave  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = before


class _Reads:
    """Notes which samples are read, in order: (role, how many, numbers) as 32-bit integers, appended at once.

    Loader workers are forked from the rank and write to the same file, which takes whole pieces.
    """

    def __init__(self, start: Start, rank: int, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._rank_pid = os.getpid()
        self._kill = start.kill[1] if start.kill is not None and start.kill[0] == rank else None
        self._jump = start.jump[1] if start.jump is not None and start.jump[0] == rank else None
        if start.jump is not None and self._jump is not None:
            _put_ahead(self._is_time_to_jump, start.jump[2])
        self._slow_s = start.slow[1] if start.slow is not None and start.slow[0] == rank else 0.0
        self._path = path
        self._looked_at = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch signals.Signals; the module is the grader's own."""
        kit: Any = sys.modules["signals"]
        begin, batch = kit.Signals.__init__, kit.Signals.batch
        reads = self

        def watched_begin(this: Any, samples: int, seed: int) -> None:
            begin(this, samples, seed)
            this._role = TRAIN if seed < EVAL_SEED else EVALUATE if seed < 2 * EVAL_SEED else OTHER

        def watched_batch(this: Any, indices: Any) -> Any:
            numbers = [int(index) for index in indices]
            reads.note(getattr(this, "_role", OTHER), numbers)
            return batch(this, numbers)

        kit.Signals.__init__, kit.Signals.batch = watched_begin, watched_batch
        try:
            yield
        finally:
            kit.Signals.__init__, kit.Signals.batch = begin, batch

    def note(self, role: int, numbers: list[int]) -> None:
        """Write it down, and do what was planned for this moment."""
        os.write(self._file, np.array([role, len(numbers), *numbers], dtype="<i4").tobytes())
        if role != TRAIN:
            return
        if self._slow_s:
            time.sleep(self._slow_s)
        if self._kill is not None and self._trained() >= self._kill:
            os.kill(self._rank_pid, signal.SIGKILL)
            if os.getpid() != self._rank_pid:
                os._exit(1)  # a loader's worker, which holds what tells the judge of the end
            signal.pause()

    def _trained(self) -> int:
        """How many training samples this rank and its loader workers have read."""
        return int(sum(count for role, count in _blocks(self._path) if role == TRAIN))

    def _is_time_to_jump(self) -> bool:
        """Looked at only where more was read since the last time: clocks are asked often."""
        size = os.fstat(self._file).st_size
        if self._jump is None or size == self._looked_at:
            return False
        self._looked_at = size
        return self._trained() >= self._jump


def _blocks(path: Path) -> Iterator[tuple[int, int]]:
    """Role and count of each piece: also what workers wrote."""
    held = np.fromfile(path, dtype="<i4")
    at = 0
    while at + 2 <= len(held):
        yield int(held[at]), int(held[at + 1])
        at += 2 + int(held[at + 1])


def _put_ahead(due: Callable[[], bool], seconds: float) -> None:
    """From a moment on all clocks of this process are ahead; done before the program takes a function of them."""
    jumped = False

    def ahead_s() -> float:
        nonlocal jumped
        jumped = jumped or due()
        return seconds if jumped else 0.0

    for name in ("time", "monotonic", "perf_counter", "clock_gettime"):
        real: Callable[..., float] = getattr(time, name)
        setattr(time, name, lambda *which, real=real: real(*which) + ahead_s())
        whole: Callable[..., int] = getattr(time, f"{name}_ns")
        setattr(time, f"{name}_ns", lambda *which, whole=whole: whole(*which) + int(ahead_s() * 1e9))
    timeit.default_timer = time.perf_counter  # it took the function when torch imported it

    class Ahead(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + datetime.timedelta(seconds=ahead_s())

        @classmethod
        def utcnow(cls) -> Any:
            return super().utcnow() + datetime.timedelta(seconds=ahead_s())

    datetime.datetime = Ahead  # type: ignore[misc]


def noted(weight: torch.Tensor) -> str:
    """A weight in short: how many numbers, and a digest of them."""
    return f"{weight.numel()}:{digest([weight])[:_SHOWN]}"


class _Steps:
    """Notes a digest of the weights that optimizers hold after each step, and of each weight before the first one.

    An optimizer may make its step by that of another one, whose weights may be a part, to be sent round afterwards
    (torch's ZeroRedundancyOptimizer): noted is what the outermost step leaves.

    Attributes:
        first: of each weight before the first step, in short.
        trouble: what went wrong with noting, in words.
        made: how many steps each optimizer made.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self.first: list[str] = []
        self.trouble = ""
        self.made: dict[int, int] = {}
        self._steps = 0
        self._under_way: list[tuple[FrameType, int]] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every optimizer of torch's family."""
        handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        step = sys._getframe(1)
        while self._under_way and not _is_within(step, self._under_way[-1][0]):
            self._under_way.pop()  # that one has raised
        self._under_way.append((step, id(optimizer)))
        try:
            if self._steps == 0 and not self.first:
                self.first = [noted(weight) for weight in _weights(optimizer)]
        except Exception as error:  # noqa: BLE001  the program must not feel it
            self.trouble = f"{type(error).__name__}: {error}"

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        step = sys._getframe(1)
        while self._under_way and self._under_way.pop()[0] is not step:
            pass
        if all(each != id(optimizer) for _, each in self._under_way):  # not where a step calls that of its own class
            self.made[id(optimizer)] = self.made.get(id(optimizer), 0) + 1
        if self._under_way:
            return
        try:
            if self._steps < _MOST_STEPS:
                self._file.write(f"{digest(_weights(optimizer))[:_SHOWN]}\n")
                self._file.flush()
            self._steps += 1
        except Exception as error:  # noqa: BLE001  the program must not feel it
            self.trouble = f"{type(error).__name__}: {error}"


def _is_within(frame: FrameType | None, caller: FrameType) -> bool:
    while frame is not None and frame is not caller:
        frame = frame.f_back
    return frame is not None


def _weights(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


@contextlib.contextmanager
def _writes_noted(here: Path, path: Path) -> Iterator[None]:
    """Note the name of every file below the folder that this process opens for writing, or puts in its place."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    pid, own = os.getpid(), str(here / SEEN)

    def note(name: Any) -> None:
        if os.getpid() != pid or not isinstance(name, str | bytes | os.PathLike):
            return
        full = str(here / os.fsdecode(name))
        if full.startswith(f"{here}/") and not full.startswith(own):
            os.write(file, f"{full[len(str(here)) + 1 :]}\n".encode(errors="replace"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and _writes(arguments):
            note(arguments[0])
        elif event == "os.rename":
            note(arguments[1])

    sys.addaudithook(hook)
    save = torch.save

    def watched(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        note(f)  # torch opens it in C++, where no hook sees it
        return save(obj, f, *args, **kwargs)

    torch.save = watched
    try:
        yield
    finally:
        torch.save = save


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))
