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
from collections.abc import Iterator
from typing import Any

import psutil
from torch.distributed.elastic.agent.server.api import WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.launcher import api as launcher

from paceline.launch.job_record import JobRecord
from paceline.launch.rank_ends import RunningRanks
from paceline.records.event import AttemptOutcome
from paceline.records.launched import Attempt

_KILL_WAIT_S = 5.0


class WatchedAgent(LocalElasticAgent):
    """The agent; `record` is set on a subclass by `watched_agent`."""

    record: JobRecord
    _running: RunningRanks | None = None
    _state: WorkerState | None = None
    _again = False

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        started = time.time()
        ids: dict[int, Any] = super()._start_workers(worker_group)
        context: Any = self._pcontext
        pids = dict(context.pids())
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        self._state = None
        self._world = worker_group.workers[0].world_size
        self._running = RunningRanks(started, ranks, pids)
        close = context.close

        def noted(*args: Any, **kwargs: Any) -> None:
            if self._running is not None and self._running.stop_unix_s is None:
                self._running.stop_unix_s = time.time()
                self.record.stopping()
            close(*args, **kwargs)

        context.close = noted
        by_rank = {ranks[local]: pid for local, pid in pids.items()}
        self.record.started(by_rank, self._world, self._running.ends)
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
        grace = self.record.grace_s()
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
            running.stop_unix_s = None  # all ended by themselves, even if a busy machine shows it late
        elif self._state in (WorkerState.FAILED, WorkerState.UNHEALTHY):
            outcome = "failed"
        else:
            outcome = "membership" if self._again else "interrupted"
        if outcome == "interrupted":
            running.end_leftovers()
        attempt = Attempt(
            attempt=len(self.record.attempts) + 1,
            started_unix_s=running.started_unix_s,
            duration_s=time.time() - running.started_unix_s,
            world=self._world,
            outcome=outcome,
            ranks=running.exits(codes),
            logs=None,
        )
        self.record.ended(attempt, self._remaining_restarts if self._again else None)


def _end_unknown_children() -> None:
    """Kill workers that torch started and did not come to note: children that lead a session of their own."""
    for child in psutil.Process().children():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(child.pid) == child.pid:
                os.killpg(child.pid, signal.SIGKILL)


@contextlib.contextmanager
def watched_agent(record: JobRecord) -> Iterator[None]:
    """Jobs that torch's launcher starts inside the block have a watched agent."""
    module: Any = launcher
    before = module.LocalElasticAgent
    module.LocalElasticAgent = type("WatchedAgent", (WatchedAgent,), {"record": record})
    try:
        yield
    finally:
        module.LocalElasticAgent = before
