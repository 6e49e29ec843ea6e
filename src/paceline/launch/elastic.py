"""Jobs of our own on torch elastic: start the ranks of this machine, wait, and end them in every case.

What we add to torch's agent: the ranks get a stated time to checkpoint when the job is told to stop, a second
Ctrl-C ends everything at once (the ranks are killed by the kernel when this process goes), and its log stays out of
the terminal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous import registry as rendezvous


@dataclass(frozen=True)
class Job:
    """What to start.

    Attributes:
        module: run as `python -m module` on every rank.
        workers: ranks on this machine.
        logs: below it torchrun's layout.
        env: added to every rank's environment.
        grace_s: time that ranks have between the signal and their end.
    """

    module: str
    workers: int
    logs: Path
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        stopped_by: the signal that stopped it, None when it ended by itself.
        failures: of ranks, by global rank; empty after success.
        logs: the directory that holds `<local_rank>/{stdout.log,stderr.log,error.json}`; None when nothing started.
    """

    stopped_by: signal.Signals | None
    failures: Mapping[int, ProcessFailure]
    logs: Path | None


class _Agent(LocalElasticAgent):
    grace_s = 30.0

    def _shutdown(self, death_sig: Any = signal.SIGTERM, *args: Any, **kwargs: Any) -> None:
        if death_sig in (signal.SIGHUP, signal.SIGQUIT):
            death_sig = signal.SIGTERM  # a closed terminal: the ranks know what to do with this one
        # From here on the ranks have been told; whoever asks again does not want to wait.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end_at_once)
        if self._pcontext is not None:
            self._pcontext.close(death_sig, int(self.grace_s))
        super()._shutdown(death_sig, *args, **kwargs)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """Leave; the ranks' parent-death signal ends them."""
    del frame
    os.write(2, b"\nended at once; the last complete checkpoint stands\n")
    os._exit(128 + number)


def run_job(job: Job) -> Ended:
    """Start the ranks and wait until they have ended, whatever the reason."""
    run_id = uuid.uuid4().hex[:12]
    logs = DefaultLogsSpecs(log_dir=str(job.logs), redirects=Std.ALL)
    parameters = RendezvousParameters(
        backend="c10d", endpoint="localhost:0", run_id=run_id, min_nodes=1, max_nodes=1, local_addr="localhost"
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
    agent.grace_s = job.grace_s
    stopped_by: signal.Signals | None = None
    result: RunResult | None = None
    with _environment(job.env), _quiet(job.logs):
        try:
            result = agent.run()
        except SignalException as stop:
            stopped_by = stop.sigval
        except UnboundLocalError as error:
            stopped_by = signal_behind(error)
            if stopped_by is None:
                raise
        finally:
            with contextlib.suppress(Exception):
                spec.rdzv_handler.shutdown()
    failures = result.failures if result is not None and result.is_failed() else {}
    return Ended(stopped_by, failures, newest_attempt(job.logs))


def signal_behind(error: BaseException) -> signal.Signals | None:
    """The signal that came while torch read the clock for its own metrics, which then trips over a time it has not got.

    torch's decorator (elastic.metrics.api.prof) reads it inside of its `try`, and uses it in the `finally`.
    """
    behind = error.__context__
    while behind is not None:
        if isinstance(behind, SignalException):
            return behind.sigval
        behind = behind.__context__
    return None


def newest_attempt(logs: Path) -> Path | None:
    """The directory of the last attempt of the last job below `logs`."""
    attempts = sorted(logs.glob("*/attempt_*"), key=lambda path: path.stat().st_mtime)
    return attempts[-1] if attempts else None


@contextlib.contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Ranks inherit this process's environment; put it back afterwards."""
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


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
