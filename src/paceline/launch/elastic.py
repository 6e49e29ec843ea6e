"""Jobs of our own on torch elastic: start the ranks of this machine, wait, and end them in every case.

What we add to torch's agent: the ranks get a stated time to checkpoint when the job is told to stop, a second
Ctrl-C ends everything at once (the ranks are killed by the kernel when this process goes), a save signal is passed on
to the ranks, and its log stays out of the terminal.

**No handler raises.** torch's own handlers raise an exception wherever the signal meets the agent: in a `finally`, in a
logging call, or between `acquire` and `try` in `Popen.poll`, whose lock is then never released, so that the agent does
not see its ranks end. Ours set a flag, and the agent looks at it each time it looks after its ranks. The agent runs in
a thread of its own: only in the main thread does torch set handlers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous import registry as rendezvous

from paceline.launch.rank_ends import attempt_of
from paceline.parallel.rank_context import SAVE_SIGNALS
from paceline.records.launched import Attempt


@dataclass(frozen=True)
class Job:
    """What to start.

    Attributes:
        module: run as `python -m module` on every rank.
        workers: ranks on this machine.
        logs: below it torchrun's layout.
        env: added to every rank's environment.
        grace_s: time that ranks have between the signal and their end.
        save_signal: is passed on to the ranks; they must listen to it.
        stands: what is on disk, in words, for whoever does not wait for the ranks to end.
    """

    module: str
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
    """What signals told this process while a job runs. Handlers set a flag, or end everything at once."""

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
        """Leave without waiting; the ranks' parent-death signal ends them."""
        try:
            stands = self.job.stands()
        except Exception:  # noqa: BLE001  # whatever the disk says, this is the way out
            stands = ""
        with contextlib.suppress(OSError):
            os.write(2, f"\nended at once{': ' * bool(stands)}{stands}\n".encode())
        os._exit(130 if number == signal.SIGINT else 143)


_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class _Agent(LocalElasticAgent):
    orders: _Orders

    def _setup_local_watchdog(self, envs: dict[int, dict[str, str]]) -> None:
        super()._setup_local_watchdog(envs)
        for each in envs.values():
            each.update(self.orders.job.env)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        # A new process inherits what is blocked: a save signal that meets a rank before it listens stays pending.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SAVE_SIGNALS)
        try:
            ids: dict[int, Any] = super()._start_workers(worker_group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return ids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        orders = self.orders
        if orders.stop is not None:
            raise SignalException(f"told to stop by {orders.stop.name}", orders.stop)
        if orders.save and orders.job.save_signal is not None:
            orders.save = False
            for handler in getattr(self._pcontext, "subprocess_handlers", {}).values():
                handler.proc.send_signal(orders.job.save_signal)
        result: RunResult = super()._monitor_workers(worker_group)
        return result

    def _shutdown(self, death_sig: Any = signal.SIGTERM, *args: Any, **kwargs: Any) -> None:
        if death_sig in (signal.SIGHUP, signal.SIGQUIT):
            death_sig = signal.SIGTERM  # a closed terminal: the ranks know what to do with this one
        if self._pcontext is not None:
            self._pcontext.close(death_sig, int(self.orders.job.grace_s))
        super()._shutdown(death_sig, *args, **kwargs)


def run_job(job: Job) -> Ended:
    """Start the ranks and wait until they have ended, whatever the reason."""
    run_id = uuid.uuid4().hex[:12]
    logs = DefaultLogsSpecs(log_dir=str(job.logs), redirects=Std.ALL)
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint="localhost:0",
        run_id=run_id,
        min_nodes=1,
        max_nodes=1,
        local_addr="localhost",
        keep_alive_interval=_NEVER_S,  # of each other, and there is only one
    )
    spec = WorkerSpec(
        role="default",
        local_world_size=job.workers,
        entrypoint=sys.executable,
        args=("-u", "-m", job.module),
        rdzv_handler=rendezvous.get_rendezvous_handler(parameters),
        max_restarts=0,
        monitor_interval=0.1,
        local_addr="localhost",
    )
    agent = _Agent(spec, logs_specs=logs, start_method="spawn")
    result: RunResult | None = None
    with _Orders(job) as orders, _quiet(job.logs), ThreadPoolExecutor(1, "agent") as thread:
        agent.orders = orders
        with contextlib.suppress(SignalException):  # orders.stop says which
            result = thread.submit(agent.run).result()
        # The rendezvous is not shut down: nobody else meets there, and torch's `shutdown` walks through the source of
        # all loaded modules to name itself in a log that nobody reads. On a busy machine ranks were gone, and the
        # launcher was still in there and in the interpreter's own end a minute later.
    failure = attempt_of(result.failures) if result is not None and result.is_failed() else None
    return Ended(orders.stop if result is None or failure else None, failure, newest_attempt(job.logs))


_NEVER_S = 10**8


def newest_attempt(logs: Path) -> Path | None:
    """The directory of the last attempt of the last job below `logs`."""
    attempts = sorted(logs.glob("*/attempt_*"), key=lambda path: path.stat().st_mtime)
    return attempts[-1] if attempts else None


@contextlib.contextmanager
def _quiet(logs: Path) -> Iterator[None]:
    """torch elastic's own log goes to a file: what users need from it is in the card."""
    logs.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("torch.distributed")
    handler = logging.FileHandler(logs / "agent.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = list(logger.handlers), logger.propagate, logger.level
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    # torch gives its submodules handlers of their own
    children = [logging.getLogger(n) for n in logging.root.manager.loggerDict if n.startswith("torch.distributed.")]
    kept = [(child, list(child.handlers), child.propagate) for child in children]
    for child in children:
        child.handlers, child.propagate = [], True
    try:
        yield
    finally:
        logger.handlers, logger.propagate, level = before
        logger.setLevel(level)
        for child, handlers, propagate in kept:
            child.handlers, child.propagate = handlers, propagate
        handler.close()
