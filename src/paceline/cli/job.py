"""What every verb that starts a job of ours needs around it: data in place, an environment for ranks, no litter."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli import signals
from paceline.cli.run_directory import resume_command
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import DEFAULT_ROOT, RunDir
from paceline.tasks.table import BUILT_IN

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.launch.local_job import Job
    from paceline.records.schema import AnyEvent, End


def refuse_torchrun(what: str) -> None:
    """Refuse to start jobs from each rank of a job: they would join that job's group.

    Args:
        what: the command, as it is typed: `paceline plan data`.

    Raises:
        PacelineError: this is one of torchrun's ranks.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        raise PacelineError(
            f"{what} starts its own workers",
            why="under torchrun every rank would start all of them",
            hint="call it by itself, not under torchrun",
        )


@contextlib.contextmanager
def tidy(run: RunDir) -> Iterator[None]:
    """A request that fails before anything was recorded leaves no directory behind."""
    try:
        with signals.cleaning(lambda: remove_litter(run)):
            yield
    except (PacelineError, KeyboardInterrupt) as error:
        asked_wrongly = getattr(error, "exit_code", Exit.USAGE) == Exit.USAGE
        # Logs of workers that failed for another reason are worth keeping.
        remove_litter(run, _FIRST_FILES if asked_wrongly else {"run.lock"})
        raise


_FIRST_FILES = {"run.lock", "logs", "events", "parts"}


def remove_litter(run: RunDir, ours: Collection[str] = _FIRST_FILES) -> None:
    """Remove the directory of a run that was never begun; anything else than `ours` keeps it."""
    if run.path.is_dir() and not run.exists() and {p.name for p in run.path.iterdir()} <= set(ours):
        shutil.rmtree(run.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            DEFAULT_ROOT.rmdir()  # ours too, when this was the first run; refused when it is not empty


def begin_trainings() -> None:
    """Start the fork server for trainings: it loads torch while this process goes on."""
    from paceline.launch.local_machine import job_server
    from paceline.train.handover import RANK_MODULES

    job_server(RANK_MODULES)


def obtain_data(task: str, data_dir: str | None) -> None:
    """Fetch what a built-in task needs, with a bar, before any worker waits for it."""
    entry = BUILT_IN.get(task)
    if entry is not None and entry.data is not None:
        from paceline.cli.data import show_progress
        from paceline.tasks.data.obtain import obtain

        with show_progress() as tell:
            obtain(entry.data, Path(data_dir) if data_dir else None, tell)


def worker_environment(workers: str, flag: str = "--workers") -> tuple[dict[str, str], int]:
    """Variables for ranks of this machine, and how many ranks there are; `flag` is what `workers` was given with."""
    from paceline.launch.local_machine import cuda_devices, job_environment
    from paceline.parallel.placement import Machine, place, usable_cores

    placement = place(Machine(cuda_devices(), usable_cores()), workers, flag)
    _require_memory(placement.workers, flag)
    return job_environment(placement.device), placement.workers


_FRESH_BYTES, _FORKED_BYTES = 370_000_000, 25_000_000
"""Private memory of a worker that trains digits, as a fresh interpreter and as a fork, which shares torch's modules."""


def _require_memory(workers: int, flag: str) -> None:
    import psutil

    from paceline.launch.local_machine import job_server
    from paceline.parallel.placement import require_memory

    total = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):  # "max", or no such file: no limit of a container
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    with job_server().session() as session:
        each = _FRESH_BYTES if session.ready.fresh else _FORKED_BYTES
    if workers > 1:
        require_memory(workers, each, total, flag)


def follow_job(
    verb: str,
    job: Job,
    run: RunDir,
    console: Console,
    extra: Callable[[AnyEvent], None] | None,
    stands: Callable[[End | None], str],
) -> int | None:
    """Start a job, draw it until it has ended, and say what stopped it.

    Args:
        verb: that resumes it.
        job: what to start.
        run: its directory.
        console: where to draw.
        extra: also gets each event.
        stands: what is on disk, given rank 0's last event if the ranks agreed to stop.

    Returns:
        The exit code of a job that was stopped, by a signal here or by the agreement of its ranks; None after success.

    Raises:
        PacelineError: a rank failed.
    """
    from paceline.cli.follow import Follower

    with Follower(run, console, extra) as follower:
        from paceline.launch.local_job import run_job
        from paceline.pool.processes import ServerGone

        try:
            ended = run_job(job)
        except ServerGone as gone:
            if run.exists():
                gone.hint = resume_command(verb, run)
            raise
    end = follower.end if follower.end is not None and follower.end.reason == "interrupted" else None
    code = end.exit_code if end is not None else None
    if ended.stopped_by is not None:
        code = int(Exit.INTERRUPTED if ended.stopped_by.name == "SIGINT" else Exit.TERMINATED)
    if code is not None:
        sys.stderr.write(f"stopped: {stands(end)}\n")
        remove_litter(run)
        return code
    if ended.failure is not None:
        from paceline.audits.job_failure import failure_of

        raise failure_of(ended.failure, ended.logs, resume_command(verb, run) if run.exists() else "")
    return None


def what_next(verb: str, run: RunDir, kept: str, nothing: str) -> str:
    """Describe what can be resumed, with the command that resumes it.

    Args:
        verb: of the run.
        run: its directory.
        kept: what is on disk, once the run has begun.
        nothing: the same before.
    """
    if not run.exists():
        return f"{nothing}\n  next: {shlex.join(['paceline', *sys.argv[1:]])}"
    return f"{kept}\n  next: {resume_command(verb, run)}"
