"""Jobs of our own on this machine: start the ranks, wait, and end them in every case.

Ranks are forked from the fork server (`pool/processes.py`) and find what torchrun gives: its environment, a store that
outlives them, and its layout of logs. They get a stated time to checkpoint when the job is told to stop; a save signal
is passed on to them; a second Ctrl-C ends everything at once.

No handler raises: an exception from a handler would be lost wherever exceptions are swallowed. Handlers set a flag,
and the loop around the ranks looks at it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from paceline.parallel.placement import STARTED_BY
from paceline.pool.processes import Session, Surroundings, fork_server
from paceline.pool.rank import rank_environment
from paceline.pool.store import start_store
from paceline.records.launched import Attempt, RankExit

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SAVES = (signal.SIGUSR1, signal.SIGUSR2)
_POLL_S = 0.05
_GATHER_S = 0.1
"""After a failure: ranks that fail in the same moment are failures of their own, and not stopped ones."""


@dataclass(frozen=True)
class Job:
    """A job of ranks on this machine.

    Attributes:
        target: `module:function`, called on every rank as `function(b"")`; it returns the exit code, or leaves with it.
        workers: ranks on this machine.
        logs: below it torchrun's layout.
        env: added to every rank's environment.
        grace_s: time that ranks have between the signal and their end.
        save_signal: is passed on to the ranks; they must listen to it.
        stands: what is on disk, in words, for whoever does not wait for the ranks to end.
    """

    target: str
    workers: int
    logs: Path
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0
    save_signal: signal.Signals | None = None
    stands: Callable[[], str] = str


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        stopped_by: the signal that stopped it, None when it ended by itself.
        failure: the ranks that failed; None after success.
        logs: the directory that holds `<local_rank>/{stdout.log,stderr.log,error.json}`; None when nothing started.
    """

    stopped_by: signal.Signals | None
    failure: Attempt | None
    logs: Path | None


class _Orders:
    """Signals that this process received while a job runs. Handlers set a flag, or end the process at once."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.stop: signal.Signals | None = None
        self.save = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Orders:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python lets no handler be set
            for number in (*_STOPS, *([self.job.save_signal] if self.job.save_signal else [])):
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *of: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number not in _STOPS:
            self.save = True
        elif self.stop is None:
            self.stop = signal.Signals(number)
        elif number != signal.SIGHUP:  # a closed terminal sends more than one
            self._end_at_once(number)

    def _end_at_once(self, number: int) -> NoReturn:
        """Leave without waiting; the ranks die with the fork server, and that with this process."""
        try:
            stands = self.job.stands()
        except Exception:  # noqa: BLE001  # whatever the disk says, this is the way out
            stands = ""
        with contextlib.suppress(OSError):
            os.write(2, f"\nended at once{': ' * bool(stands)}{stands}\n".encode())
        os._exit(130 if number == signal.SIGINT else 143)


class _Ranks:
    """The ranks of a job, in the order of their numbers."""

    def __init__(self, job: Job, session: Session) -> None:
        self.session = session
        self.logs = job.logs / f"{uuid.uuid4().hex[:12]}" / "attempt_0"
        self.started_unix_s = time.time()
        self.stop_unix_s: float | None = None
        fresh = session.ready.fresh
        common = {**os.environ, **job.env, STARTED_BY: f"spawn: {fresh}" if fresh else "fork"}
        port = start_store(session, job.workers)
        self.pids = [
            self._start(job, rank, {**common, **rank_environment(rank, job.workers, port)})
            for rank in range(job.workers)
        ]

    def _start(self, job: Job, rank: int, env: Mapping[str, str]) -> int:
        folder = self.logs / str(rank)
        folder.mkdir(parents=True)
        with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
            within = Surroundings(
                {**env, "TORCHELASTIC_ERROR_FILE": str(folder / "error.json")},
                blocked=_SAVES,  # one that comes before the rank listens stays pending
                name=f"paceline rank{rank}",
            )
            return self.session.start(job.target, output=(out.fileno(), err.fileno()), within=within)

    def send_signal(self, number: signal.Signals) -> None:
        """To every rank that runs."""
        for pid in self.pids:
            self.session.send_signal(pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait until a rank ends, or some time at most; whether all have ended."""
        self.session.wait(seconds)
        return all(pid in self.session.codes for pid in self.pids)

    def failed(self) -> bool:
        """A rank has ended without success."""
        return any(self.session.codes.get(pid, 0) != 0 for pid in self.pids)

    def end(self, number: signal.Signals, grace_s: float) -> None:
        """Tell the ranks to stop, wait for them, and kill those that do not."""
        self.stop_unix_s = time.time()
        # A closed terminal: the ranks know what to do with SIGTERM.
        self.send_signal(signal.SIGTERM if number in (signal.SIGHUP, signal.SIGQUIT) else number)
        deadline = time.monotonic() + grace_s
        while not self.wait(_POLL_S) and time.monotonic() < deadline:
            pass
        self.session.kill()

    def attempt(self) -> Attempt:
        """How each rank ended, once all have."""
        return Attempt(
            attempt=1,
            started_unix_s=self.started_unix_s,
            duration_s=time.time() - self.started_unix_s,
            world=len(self.pids),
            outcome="failed",
            ranks=[self._exit(rank, pid) for rank, pid in enumerate(self.pids)],
            logs=None,
        )

    def _exit(self, rank: int, pid: int) -> RankExit:
        at = self.session.ends_unix_s[pid]
        return RankExit(
            rank=rank,
            local_rank=rank,
            pid=pid,
            exit_code=self.session.codes[pid],
            after_s=max(0.0, at - self.started_unix_s),
            stopped=self.stop_unix_s is not None and at >= self.stop_unix_s,
        )


def run_job(job: Job) -> Ended:
    """Start the ranks and wait until they have ended, whatever the reason.

    Raises:
        ServerGone: the fork server was killed; the ranks died with it.
    """
    with fork_server({**os.environ, **job.env}).session() as session, _Orders(job) as orders:
        ranks = _Ranks(job, session)
        while not ranks.wait(_POLL_S):
            if orders.stop is not None:
                ranks.end(orders.stop, job.grace_s)
                return Ended(orders.stop, None, ranks.logs)
            if orders.save and job.save_signal is not None:
                orders.save = False
                ranks.send_signal(job.save_signal)
            if ranks.failed():
                ranks.wait(_GATHER_S)
                ranks.end(signal.SIGTERM, job.grace_s)
        failure = ranks.attempt() if ranks.failed() else None
        return Ended(orders.stop if failure else None, failure, ranks.logs)
