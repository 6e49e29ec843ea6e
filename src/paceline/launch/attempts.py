"""torch's agent, watched: each attempt of its workers with the ends of its ranks.

`elastic_launch` makes the agent itself, so the class that it makes is exchanged while it runs (`watched_agent`). What
the agent does is unchanged, with one addition: when a second signal comes while workers are being stopped, they are
killed instead of left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import psutil
from torch.distributed.elastic.agent.server.api import WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.launcher import api as launcher

from paceline.launch.rank_ends import EndWatcher
from paceline.records.event import AttemptOutcome
from paceline.records.launched import RankExit

Ends = Mapping[int, tuple[float, int | None]]
"""Time and exit code of ranks that have ended, by rank."""
_KILL_WAIT_S = 5.0
_LEFTOVER_S = 2.0


@dataclass(frozen=True)
class Ended:
    """One attempt, as far as this machine shows it.

    Attributes:
        outcome: how it ended.
        started_unix_s: when its workers were started.
        duration_s: until the last had ended.
        world: ranks on all machines.
        again: the workers are started again.
        restarts_left: how often that may still happen after a failure.
        ranks: of this machine.
    """

    outcome: AttemptOutcome
    started_unix_s: float
    duration_s: float
    world: int
    again: bool
    restarts_left: int
    ranks: tuple[RankExit, ...]


class Observer(Protocol):
    """Who is told."""

    def started(self, pids: Mapping[int, int], world: int, ends: Callable[[], Ends]) -> None:
        """Workers run; `pids` by rank, `ends` gives the ends so far."""

    def stopping(self) -> None:
        """Workers are being told to stop."""

    def ended(self, attempt: Ended) -> None:
        """All workers of this machine have ended."""

    def grace_s(self) -> int | None:
        """Seconds that workers get after a signal; None for torch's own."""


class WatchedAgent(LocalElasticAgent):
    """The agent; `observer` is set on a subclass by `watched_agent`."""

    observer: Observer
    _running: _Running | None = None
    _state: WorkerState | None = None
    _again = False

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        started = time.time()
        ids: dict[int, Any] = super()._start_workers(worker_group)
        context: Any = self._pcontext
        pids = dict(context.pids())
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        self._state = None
        self._running = _Running(started, ranks, worker_group.workers[0].world_size, pids)
        close = context.close

        def noted(*args: Any, **kwargs: Any) -> None:
            if self._running is not None and self._running.stop_unix_s is None:
                self._running.stop_unix_s = time.time()
                self.observer.stopping()
            close(*args, **kwargs)

        context.close = noted
        by_rank = {ranks[local]: pid for local, pid in pids.items()}
        self.observer.started(by_rank, self._running.world, self._running.ends)
        return ids

    def _monitor_workers(self, worker_group: Any) -> Any:
        result = super()._monitor_workers(worker_group)
        self._state = result.state
        return result

    def _restart_workers(self, worker_group: Any) -> None:
        self._again = True
        try:
            super()._restart_workers(worker_group)
        finally:
            self._again = False

    def _shutdown(self, death_sig: Any = signal.SIGTERM, *args: Any, **kwargs: Any) -> None:
        grace = self.observer.grace_s()
        if grace is not None and "timeout" in kwargs:
            kwargs["timeout"] = grace
        try:
            super()._shutdown(death_sig, *args, **kwargs)
        except SignalException:
            self._kill()
            raise
        finally:
            if self._running is None and self._state is None:
                _end_unknown_children()  # a signal came while workers were being started
            self._finish()

    def _kill(self) -> None:
        """A second signal: nobody wants to wait any longer."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for pid in self._pcontext.pids().values() if self._pcontext else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for handler in getattr(self._pcontext, "subprocess_handlers", {}).values():
            with contextlib.suppress(Exception):
                handler.proc.wait(_KILL_WAIT_S)

    def _finish(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        codes = {
            local: handler.proc.poll() for local, handler in getattr(self._pcontext, "subprocess_handlers", {}).items()
        }
        outcome: AttemptOutcome
        if self._state == WorkerState.SUCCEEDED:
            outcome = "succeeded"
        elif self._state in (WorkerState.FAILED, WorkerState.UNHEALTHY):
            outcome = "failed"
        else:
            outcome = "membership" if self._again else "interrupted"
        if outcome == "interrupted":
            running.end_leftovers()
        self.observer.ended(
            Ended(
                outcome=outcome,
                started_unix_s=running.started_unix_s,
                duration_s=time.time() - running.started_unix_s,
                world=running.world,
                again=self._again,
                restarts_left=self._remaining_restarts,
                ranks=running.exits(codes),
            )
        )


class _Running:
    """The attempt that is going on."""

    def __init__(self, started_unix_s: float, ranks: Mapping[int, int], world: int, pids: Mapping[int, int]) -> None:
        self.started_unix_s = started_unix_s
        self.world = world
        self.stop_unix_s: float | None = None
        self._ranks = ranks
        self._pids = pids
        self._watcher = EndWatcher(pids)

    def ends(self) -> Ends:
        """What is known so far."""
        return {self._ranks[local]: (end.at_unix_s, end.exit_code) for local, end in list(self._watcher.ends.items())}

    def exits(self, codes: Mapping[int, int | None]) -> tuple[RankExit, ...]:
        """How each rank ended; `codes` are the agent's, by local rank."""
        self._watcher.stop()
        found = []
        for local, pid in self._pids.items():
            seen = self._watcher.ends.get(local)
            code = codes.get(local)
            if code is None and seen is not None:
                code = seen.exit_code
            at = seen.at_unix_s if seen else None
            found.append(
                RankExit(
                    rank=self._ranks[local],
                    local_rank=local,
                    pid=pid,
                    exit_code=code,
                    after_s=None if at is None else max(0.0, at - self.started_unix_s),
                    stopped=at is not None and self.stop_unix_s is not None and at >= self.stop_unix_s,
                )
            )
        return tuple(found)

    def end_leftovers(self) -> None:
        """End what workers that were interrupted left in their process groups, such as processes of mp.spawn."""
        deadline = time.monotonic() + _LEFTOVER_S
        left = set(self._pids.values())
        while left and time.monotonic() < deadline:
            left = {pid for pid in left if _group_lives(pid)}
            time.sleep(0.05 if left else 0)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


def _end_unknown_children() -> None:
    """Kill workers that torch started and did not come to note: children that lead a session of their own."""
    for child in psutil.Process().children():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(child.pid) == child.pid:
                os.killpg(child.pid, signal.SIGKILL)


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def watched_agent(observer: Observer) -> Iterator[None]:
    """Jobs that torch's launcher starts inside the block have a watched agent."""
    module: Any = launcher
    before = module.LocalElasticAgent
    module.LocalElasticAgent = type("WatchedAgent", (WatchedAgent,), {"observer": observer})
    try:
        yield
    finally:
        module.LocalElasticAgent = before
