"""Carry out a plan of `paceline run`: torchrun's own agent, with a run directory and a root-cause card around it.

Nothing here prints or changes the environment of this process: the caller shows what it is told, and sets
`LaunchPlan.added_environment`, which workers inherit, in between `recorded_run` and `execute`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import platform
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from paceline import __version__
from paceline.launch.attempts import watched_agent
from paceline.launch.capture import CapturedLogs
from paceline.launch.hang_watch import HangWatch
from paceline.launch.job_record import JobRecord, Judge, in_a_line
from paceline.launch.plan import LaunchPlan
from paceline.launch.rank_ends import attempt_of
from paceline.launch.stall import Script, read_script
from paceline.launch.torchrun_flags import one_message
from paceline.parallel.host import git_state
from paceline.records.errors import Exit, PacelineError
from paceline.records.launched import Attempt, Cause
from paceline.records.rundir import RunDir, make_dirs, make_run_dir, run_lock, write_info
from paceline.records.schema import SCHEMA, End, RunInfo, Start
from paceline.records.writer import EventWriter

Reason = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_code: torchrun's.
        reason: as in the `End` event.
        message: for people; "" when there is nothing to say.
        title: the same in a line, for the record.
        cause: of a failure.
        attempts: that ended, with their causes.
    """

    exit_code: int
    reason: Reason
    message: str = ""
    title: str = ""
    cause: Cause | None = None
    attempts: tuple[Attempt, ...] = ()


@contextmanager
def recorded_run(plan: LaunchPlan) -> Iterator[LaunchPlan]:
    """Make the run directory and write run.json; the block may start the job. Yields the plan with that directory.

    Raises:
        PacelineError: it cannot be made; nothing was started.
    """
    if plan.flags["run_dir"] is None:
        plan = dataclasses.replace(plan, run_dir=make_run_dir(plan.run_dir).path)
    else:
        make_dirs(plan.run_dir)
    run = RunDir(plan.run_dir)
    with run_lock(run) if plan.nodes[1] == 1 else nullcontext():
        _write_info(plan, run)
        yield plan


def execute(plan: LaunchPlan, say: Callable[[str], None], judge: Judge, hangs: HangWatch | None = None) -> Outcome:
    """Start the job and wait for its end.

    Args:
        plan: of `recorded_run`.
        say: shows a line beside the workers' output.
        judge: says why an attempt failed.
        hangs: watches for hangs where ranks are observed.

    Raises:
        PacelineError: torch's launcher failed.
    """
    run, started = RunDir(plan.run_dir), time.monotonic()
    with EventWriter(_event_file(run)) as events:

        def end(exit_code: int, reason: Reason, message: str) -> None:
            elapsed_s = time.monotonic() - started
            events.write(End(step=0, reason=reason, exit_code=exit_code, elapsed_s=elapsed_s, message=message))

        events.write(Start(session=1, time_unix_s=time.time(), world=plan.world, step=0, pid=os.getpid()))
        try:
            config = _with_logs(plan)
            job = JobRecord(events, run.path, _logs(config), _script(plan), say, judge, hangs)
            outcome = _launch(plan, run, config, job, judge)
        except PacelineError as error:
            end(error.exit_code, "failed", error.what)
            raise
        end(outcome.exit_code, outcome.reason, outcome.title)
    return outcome


def _write_info(plan: LaunchPlan, run: RunDir) -> None:
    if run.exists():
        return
    flags = {name: value for name, value in plan.flags.items() if name != "dry_run"} | {"log_dir": plan.log_dir}
    config = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    machine = {
        "host": socket.gethostname(),
        "cores": os.cpu_count(),
        "accelerators": torch.accelerator.device_count() if torch.accelerator.is_available() else 0,
        "workers_per_machine": plan.workers,
        "machines": plan.flags["nnodes"],
        "directory": str(Path.cwd()),
    }
    info = RunInfo(
        schema=SCHEMA,
        verb="run",
        name=plan.name,
        command=["paceline", "run", *plan.argv],
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions={"paceline": __version__, "python": platform.python_version(), "torch": str(torch.__version__)},
        config=config,
        git=git_state(),
        facts={
            "settings": {each.name: each.value for each in plan.settings},
            "logs": plan.log_dir,
            "max_restarts": plan.flags["max_restarts"],
            "machine": machine,
        },
    )
    write_info(run, info)


def _event_file(run: RunDir) -> Path:
    """One file a launcher, also where two of them run on one machine."""
    host = socket.gethostname()
    for number in range(1, 1000):
        path = run.launcher_events(host if number == 1 else f"{host}-{number}")
        make_dirs(path.parent)
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError:
            return path  # the writer says why it cannot be written
        return path
    return run.launcher_events(f"{host}-{os.getpid()}")


def _logs(config: LaunchConfig) -> CapturedLogs | None:
    return config.logs_specs if isinstance(config.logs_specs, CapturedLogs) else None


def _launch(plan: LaunchPlan, run: RunDir, config: LaunchConfig, job: JobRecord, judge: Judge) -> Outcome:
    """Hand the job to torch elastic and wait for its end."""
    logs = _logs(config)
    before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        with one_message("torch's launcher failed; the script may not have run", exit_code=Exit.FAILED):
            _elastic(config, plan.entrypoint, plan.arguments, job)
    except ChildFailedError as failed:
        return dataclasses.replace(_failed(job, failed, run, plan, judge), attempts=tuple(job.attempts))
    except (SignalException, KeyboardInterrupt, UnboundLocalError) as stopped:
        outcome = dataclasses.replace(_interrupted(job, stopped), attempts=tuple(job.attempts))
        before = dict.fromkeys(_SIGNALS, signal.SIG_IGN)  # it ends at once in any case, with its record complete
        return outcome
    finally:
        if logs is not None:
            logs.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return Outcome(Exit.OK, "finished", _history(job, run, plan), attempts=tuple(job.attempts))


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _script(plan: LaunchPlan) -> Script:
    script, arguments = plan.flags["training_script"], tuple(plan.flags["training_script_args"])
    if plan.flags["no_python"]:
        return Script(script, arguments)
    return Script(script, arguments, start=("python", "-m")) if plan.flags["module"] else read_script(script, arguments)


def _failed(job: JobRecord, failed: ChildFailedError, run: RunDir, plan: LaunchPlan, judge: Judge) -> Outcome:
    cause = job.attempts[-1].cause if job.attempts else None
    if cause is None:  # the agent's word is all there is
        logs = None if plan.log_dir == os.devnull else Path(plan.log_dir)
        cause = judge(attempt_of(failed.failures), logs)
    title = cause.title if cause else "a rank failed"
    return Outcome(Exit.FAILED, "failed", _history(job, run, plan), title, cause)


def _interrupted(job: JobRecord, stopped: BaseException) -> Outcome:
    """Stopped by a signal, perhaps while torch read a clock for its metrics (see `_signal_behind`)."""
    number = getattr(stopped, "sigval", None)
    if isinstance(stopped, KeyboardInterrupt):  # before torch's handlers were in place
        number = signal.Signals(stopped.args[0] if stopped.args else signal.SIGINT)
    elif isinstance(stopped, UnboundLocalError):
        number = _signal_behind(stopped)
    if number is None:
        raise stopped
    if not job.attempts:
        code = Exit.INTERRUPTED if number == signal.SIGINT else Exit.TERMINATED
        title = f"stopped by {number.name} before any worker ran"
        return Outcome(code, "interrupted", f"paceline: {title}", title)
    left = [each for each in job.attempts[-1].ranks if each.exit_code == 0 and not each.stopped]
    ranks = ", ".join(f"rank {each.rank} after {each.after_s or 0.0:.1f} s" for each in left)
    earlier = f"; with code 0 had already ended: {ranks}" if left else ""
    text = f"paceline: stopped by {number.name}, which the workers got too{earlier}"
    return Outcome(Exit.FAILED, "interrupted", text, f"stopped by {number.name}")


def _signal_behind(error: BaseException) -> signal.Signals | None:
    """The signal that came while torch read the clock for its own metrics, which then trips over a time it has not got.

    torch's decorator (elastic.metrics.api.prof) reads it inside of its `try`, and uses it in the `finally`.
    """
    behind = error.__context__
    while behind is not None:
        if isinstance(behind, SignalException):
            return behind.sigval
        behind = behind.__context__
    return None


def _history(job: JobRecord, run: RunDir, plan: LaunchPlan) -> str:
    """The attempts, where there was more than one."""
    if len(job.attempts) < 2:
        return ""
    last = job.attempts[-1]
    whole = sum(each.outcome == "membership" for each in job.attempts) + plan.flags["max_restarts"] + 1
    how = "succeeded at" if last.outcome == "succeeded" else "failed at"
    lines = [f"paceline: {how} attempt {last.attempt} of {'at most ' if last.attempt < whole else ''}{whole}"]
    for each in job.attempts[:-1]:
        lines.append(f"  {in_a_line(each)}")
        if each.logs is not None:
            lines.append(f"    log {run.path / each.logs}")
    return "\n".join(lines)


@record
def _elastic(config: LaunchConfig, entrypoint: Any, arguments: Sequence[str], job: JobRecord) -> None:
    with watched_agent(job):
        elastic_launch(config=config, entrypoint=entrypoint)(*arguments)


def _with_logs(plan: LaunchPlan) -> LaunchConfig:
    """torch's configuration, with logs that keep a copy of stderr unless the user brings another plug-in."""
    flags = plan.flags
    if flags["logs_specs"] is not None:
        whole = argparse.Namespace(**dict(flags) | {"log_dir": plan.log_dir})
        config, _, _ = torchrun.config_from_args(whole)
        return config
    ranks = {int(each) for each in flags["local_ranks_filter"].split(",")} if flags["local_ranks_filter"] else None
    logs = CapturedLogs(
        log_dir=plan.log_dir,
        redirects=Std.from_str(flags["redirects"]),
        tee=Std.from_str(flags["tee"]),
        local_ranks_filter=ranks,
    )
    return dataclasses.replace(plan.config, logs_specs=logs)
