"""Time all-reduces on this machine: jobs of a few seconds each, one a number of workers."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from paceline.plan.network import Timed
from paceline.records.errors import Exit, PacelineError

SIZES = tuple(4 * 1024 * 8**power for power in range(6))
"""4 KiB to 128 MiB, each 8 times the one before."""


def probe(
    workers: Sequence[int],
    env: Mapping[str, str],
    *,
    seconds: float = 10.0,
    sizes: Sequence[int] = SIZES,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> list[Timed]:
    """Time all-reduces with each number of workers in turn.

    Args:
        workers: numbers of workers, 2 and more; others are left out.
        env: for the ranks.
        seconds: of measuring in all, starting the ranks not counted.
        sizes: bytes.
        tell: is called with how many jobs are done, and of how many.

    Raises:
        PacelineError: a job failed, or was stopped.
    """
    counts = sorted({count for count in workers if count > 1})
    rows: list[Timed] = []
    for number, count in enumerate(counts):
        tell(number, len(counts))
        with tempfile.TemporaryDirectory(prefix="paceline-probe-") as scratch:
            result = Path(scratch) / "result.json"
            handover = {"sizes": list(sizes), "seconds": seconds / len(counts), "result": str(result)}
            _run(
                "paceline.studies.probe_worker:main",
                count,
                Path(scratch) / "logs",
                {**env, "PACELINE_PROBE": msgspec.json.encode(handover).decode()},
            )
            medians = msgspec.json.decode(result.read_bytes(), type=dict[int, float])
        rows += [Timed(count, size, seconds) for size, seconds in sorted(medians.items())]
    tell(len(counts), len(counts))
    if not rows:
        raise PacelineError(
            "a network between one worker is none",
            hint="--probe-workers 2, where workers are cores; --bandwidth and --latency where they are devices",
            exit_code=Exit.USAGE,
        )
    return rows


def _run(target: str, workers: int, logs: Path, env: Mapping[str, str]) -> None:
    """Call `target` on so many ranks of this machine, whose output goes to `logs`.

    Raises:
        PacelineError: a rank failed; its own words are the reason.
        KeyboardInterrupt: stopped by Ctrl-C, or by another signal, whose number is then its argument.
    """
    from paceline.audits.job_failure import failure_of
    from paceline.launch.local_job import Job, run_job

    ended = run_job(Job(target=target, workers=workers, logs=logs, env=env))
    if ended.stopped_by == signal.SIGINT:
        raise KeyboardInterrupt
    if ended.stopped_by is not None:
        raise KeyboardInterrupt(int(ended.stopped_by))
    if ended.failure is not None:
        raise failure_of(ended.failure, ended.logs, "")
