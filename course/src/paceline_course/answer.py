"""An answer under test: how a check runs a learner's code without ever loading it itself."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.pool.warm_ranks import RankTimeout, run_ranks
from paceline.records.observed import Collective, CollectiveDone
from paceline.records.reader import EventStream
from paceline_course.answer_process import ANSWER, Program, ScriptSeen, Task, perform, run_script, trace_file
from paceline_course.sandbox.limits import Limits, free_user

TIMEOUT_S = 20.0
_MOST_FILES, _MOST_BYTES = 200, 1 << 20


@dataclass(frozen=True)
class Traced:
    """What one rank did.

    Attributes:
        result: what the function returned.
        calls: the collectives that it issued, in order.
        done_s: when each was complete, by seq.
    """

    result: Any
    calls: list[Collective]
    done_s: dict[int, float]


class Answer:
    """One file of a learner, for one property.

    Args:
        path: of the file.
        scratch: a folder for what is run; each call has one of its own in it.
        seed: of the property's random numbers.
        patience: factor on all time limits.

    Attributes:
        draw: random numbers, others for every check.
        last: the folder of the last call: what ranks printed and traced is there.
    """

    def __init__(self, path: Path, scratch: Path, seed: int, patience: float = 1.0) -> None:
        self.path = path
        self.seed = seed
        self.draw = np.random.Generator(np.random.Philox(seed))
        self.last: Path | None = None
        self.limits: Limits | None = None
        self._scratch, self._patience = scratch, patience
        self._calls = 0
        self._given: dict[str, bytes] = {}

    def call(self, function: Callable[..., Any], *args: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """`function(*args)` in a fresh process; it stands at the top of the checks' module."""
        return self.ranks(function, 1, *args, timeout_s=timeout_s)[0]

    def ranks(
        self, function: Callable[..., Any], world: int, *args: Any, timeout_s: float = TIMEOUT_S, group: bool = True
    ) -> list[Any]:
        """`function(*args)` on `world` fresh ranks of one gloo group; their results, rank 0 first.

        Args:
            group: without, the learner's code has to make the group itself, as under torchrun.
        """
        task = _task(function, args, trace=not GroupCollectives.missing())
        return self._run(perform, world, task, timeout_s, group=group, reads=(_content(function),))

    def traced(
        self, function: Callable[..., Any], world: int, *args: Any, timeout_s: float = TIMEOUT_S, group: bool = True
    ) -> list[Traced]:
        """As `ranks`, with the collectives that each rank issued."""
        task = _task(function, args, trace=True)
        results = self._run(perform, world, task, timeout_s, group=group, reads=(_content(function),))
        assert self.last is not None
        return [Traced(result, *read_trace(self.last, rank)) for rank, result in enumerate(results)]

    def script(self, world: int, *arguments: str, machines: int = 1, timeout_s: float = 60.0) -> list[ScriptSeen]:
        """The file as a program on `world` ranks, with the environment of torchrun; what each rank was seen to do.

        Files that it writes are in `last` afterwards, and what it printed in `printed`.

        Args:
            world: ranks, on all machines together.
            arguments: of the program.
            machines: that its environment tells of, with equally many ranks each; all of them are this one.
            timeout_s: for all of it.
        """
        if world % machines:
            raise ValueError(f"{world} ranks cannot be shared by {machines} machines")
        return self._run(run_script, world, Program(arguments, machines), timeout_s, group=False)

    def give(self, name: str, content: bytes) -> None:
        """Put a file beside the answer in all further calls."""
        self._given[name] = content

    def printed(self, rank: int) -> str:
        """What a rank printed in the last call."""
        return self.limits.printed(rank) if self.limits is not None else ""

    def calls(self, rank: int) -> list[Collective]:
        """The collectives of a rank in the last call, where they were traced."""
        return read_trace(self.last, rank)[0] if self.last is not None else []

    def _run(
        self,
        inside: Callable[[Any], Any],
        world: int,
        argument: Any,
        timeout_s: float,
        *,
        group: bool,
        reads: tuple[Path, ...] = (),
    ) -> list[Any]:
        self._calls += 1
        self.last = folder = self._scratch / f"call-{self._calls}"
        copy = copy_work(self.path, folder)
        for name, content in self._given.items():
            (folder / name).write_bytes(content)
        self.limits = Limits(folder, user=free_user(), reads=reads)
        return run_ranks(
            inside,
            world,
            argument,
            timeout_s=timeout_s * self._patience,
            env={ANSWER: str(copy), "OMP_NUM_THREADS": "1"},
            limits=self.limits,
            group=group,
        )


def _task(function: Callable[..., Any], arguments: tuple[Any, ...], *, trace: bool) -> Task:
    path = function.__code__.co_filename
    return Task(path, function.__module__, function.__name__, pickle.dumps(arguments), trace)


def _content(function: Callable[..., Any]) -> Path:
    """The folder of the course's content, which another user has to be able to read."""
    return Path(function.__code__.co_filename).parents[2]


def copy_work(path: Path, folder: Path) -> Path:
    """The file and the exercise files beside it, so that one may import the other; the path of the copy.

    Raises:
        FileNotFoundError: the file is gone.
    """
    folder.mkdir(parents=True)
    beside = sorted(path.parent.glob("L*_*.py"))[:_MOST_FILES]
    for each in dict.fromkeys((path, *beside)):
        if each.is_file() and (each == path or each.stat().st_size <= _MOST_BYTES):
            shutil.copyfile(each, folder / each.name)
    if not (folder / path.name).exists():
        raise FileNotFoundError(path)
    return folder / path.name


def read_trace(folder: Path, rank: int) -> tuple[list[Collective], dict[int, float]]:
    """The collectives of a rank, and when each was complete; empty where nothing was traced."""
    path = trace_file(folder, rank)
    if path.is_symlink() or not path.is_file():  # an answer may put anything in its place
        return [], {}
    events = list(EventStream(path))
    calls = [event for event in events if isinstance(event, Collective)]
    return calls, {event.seq: event.done_s for event in events if isinstance(event, CollectiveDone)}


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder which other users may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="paceline-check-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Answer", "RankTimeout", "Traced", "copy_work", "read_trace", "scratch_folder"]
