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

from paceline.launch.limits import Limits, free_user
from paceline.launch.pool import RankTimeout, run_ranks
from paceline.learn.inside import ANSWER, Task, perform, trace_file
from paceline.observe.collectives import CollectiveTrace
from paceline.records.observed import Collective, CollectiveDone
from paceline.records.reader import EventStream

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
        return self._run(function, world, args, timeout_s, group=group, trace=CollectiveTrace.available())

    def traced(
        self, function: Callable[..., Any], world: int, *args: Any, timeout_s: float = TIMEOUT_S, group: bool = True
    ) -> list[Traced]:
        """As `ranks`, with the collectives that each rank issued."""
        results = self._run(function, world, args, timeout_s, group=group, trace=True)
        assert self.last is not None
        return [Traced(result, *read_trace(self.last, rank)) for rank, result in enumerate(results)]

    def _run(
        self,
        function: Callable[..., Any],
        world: int,
        args: tuple[Any, ...],
        timeout_s: float,
        *,
        group: bool,
        trace: bool,
    ) -> list[Any]:
        self._calls += 1
        self.last = folder = self._scratch / f"call-{self._calls}"
        copy = copy_work(self.path, folder)
        path = function.__code__.co_filename
        # The content of the course has to be readable for another user, too.
        self.limits = limits = Limits(folder, user=free_user(), reads=(Path(path).parents[2],))
        task = Task(path, function.__module__, function.__name__, pickle.dumps(args), trace)
        return run_ranks(
            perform,
            world,
            task,
            timeout_s=timeout_s * self._patience,
            env={ANSWER: str(copy), "OMP_NUM_THREADS": "1"},
            limits=limits,
            group=group,
        )


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
    if not path.exists():
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
