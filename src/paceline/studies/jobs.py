"""Start a job of our own and wait for it; what failed is one error, and a stop is one as at the terminal."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path


def run_quietly(module: str, workers: int, logs: Path, env: Mapping[str, str]) -> None:
    """Run `python -m module` on so many ranks of this machine.

    Args:
        module: a worker.
        workers: ranks.
        logs: where their output goes.
        env: added to their environment.

    Raises:
        PacelineError: a rank failed; its own words are the reason.
        KeyboardInterrupt: stopped by Ctrl-C, or by another signal, whose number is then its argument.
    """
    from paceline.audits.job_failure import failure_of
    from paceline.launch.elastic import Job, run_job

    ended = run_job(Job(module=module, workers=workers, logs=logs, env=env))
    if ended.stopped_by == signal.SIGINT:
        raise KeyboardInterrupt
    if ended.stopped_by is not None:
        raise KeyboardInterrupt(int(ended.stopped_by))
    if ended.failure is not None:
        raise failure_of(ended.failure, ended.logs, "")
