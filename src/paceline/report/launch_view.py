"""Numbers and texts of a run of `paceline run`: attempts with their causes, ends and output of ranks, observed steps.

Steps, losses and learning rates are recorded by the observer in each rank; metrics are never observed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from paceline.records.launched import Attempt, Cause, RankExit
from paceline.records.observation import ObservedRun, Unseen
from paceline.records.observed import NotObserved
from paceline.report import words
from paceline.report.observed_ranks import ObservedJob
from paceline.report.run_record import Run
from paceline.report.thin import Sample

NOT_OBSERVED = ("steps", "samples", "loss", "metrics", "samples/s", "learning rate", "checkpoints")
_FILES = ("output.log", "stdout.log", "stderr.log")
_LINES = 20
_MAX_RANKS = 16
_MAX_CHARACTERS = 400
_TAIL_BYTES = 64 * 1024
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """The end of what a rank wrote in its last attempt."""

    rank: int
    file: str
    """Relative to the run directory where it is below it."""
    size_bytes: int
    lines: list[str]
    """The last ones, as a terminal shows them: without escapes, and of a progress bar its last state."""
    whole: bool
    """There are no others."""


class LastLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank called backward on, without the loss scale, at the last step where that was recorded."""

    rank: int
    step: int
    value: float


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What the launcher knows."""

    wall_s: float | None
    """From the launcher's start to its end, start-up of the workers included."""
    world: int | None
    attempts: list[Attempt]
    cause: Cause | None
    """Of the last attempt, when that failed."""
    output: list[Output]
    not_observed: list[str]
    steps: int | None = None
    """Optimizer steps of the rank that took most, in its last attempt."""
    step_s: float | None = None
    """Median over single steps of rank 0, warm-up left out."""
    timed_steps: int = 0
    samples_per_s: float | None = None
    """Of all ranks, likewise."""
    steps_per_s: float | None = None
    """Of rank 0, pauses included."""
    samples_per_s_overall: float | None = None
    """That the training loops of all ranks received, pauses included."""
    samples: dict[int, int] = {}  # msgspec makes a new one for each
    """That the training loop of each rank received; empty unless all ranks are known."""
    losses: list[LastLoss] = []  # msgspec makes a new one for each
    lr: float | None = None
    """Of the last recorded step: rank 0's first optimizer, its first parameter group."""
    observation: ObservedRun | None = None
    """What was found; None where that was not recorded."""
    timed_by: list[str] = []  # msgspec makes a new one for each
    sampled: bool = False
    """Only some steps were timed."""


def launch_of(run: Run) -> Launch | None:
    """The launcher's view of a run; None for runs of other verbs."""
    if run.info.verb != "run":
        return None
    attempts = list(run.attempts)
    last = attempts[-1] if attempts else None
    seen = run.observed
    rate = _median(seen.rates) if seen else None
    losses = _last_losses(run.job)
    lr = _last_lr(run.job)
    world = launch_world(run)
    samples = run.job.samples if world is not None and len(run.job.samples) == world else {}
    steps = max((rank.steps for rank in run.job.ranks.values()), default=0) or None
    found = run.observation
    overall = found.samples_per_s if found else None
    known = {
        "steps": steps,
        "samples": (seen and seen.samples) or samples or None,
        "samples/s": rate if rate is not None else overall,
        "loss": losses or None,
        "learning rate": lr,
    }
    unseen: Sequence[NotObserved | Unseen] = run.not_observed if found is None else found.not_observed
    return Launch(
        steps=steps,
        step_s=_median(seen.durations) if seen else None,
        timed_steps=len(seen.durations.values()) if seen else 0,
        samples_per_s=rate,
        steps_per_s=_steps_per_s(run.job),
        samples_per_s_overall=overall,
        samples=samples,
        losses=losses,
        lr=lr,
        observation=found,
        timed_by=list(seen.sources) if seen else [],
        sampled=seen is not None and seen.sampled,
        wall_s=run.end.elapsed_s if run.end else None,
        world=world,
        attempts=attempts,
        cause=last.cause if last else None,
        output=_output(run.path, last) if last else [],
        not_observed=[
            *(what for what in NOT_OBSERVED if known.get(what) is None),
            *(f"{each.what} ({each.why})" for each in unseen),
        ],
    )


def _last_losses(job: ObservedJob) -> list[LastLoss]:
    """Of the first optimizer of each rank."""
    found = []
    for rank in job.ranks.values():
        for trace in list(rank.optimizers.values())[:1]:
            known = [(step, loss) for step, loss in zip(trace.step, trace.loss, strict=True) if math.isfinite(loss)]
            if known:
                found.append(LastLoss(rank=rank.rank, step=int(known[-1][0]), value=known[-1][1]))
    return found


def _last_lr(job: ObservedJob) -> float | None:
    first = job.ranks.get(0)
    traces = list(first.optimizers.values()) if first else []
    return traces[0].lr[-1] if traces and math.isfinite(traces[0].lr[-1]) else None


def _steps_per_s(job: ObservedJob) -> float | None:
    first = job.ranks.get(0)
    if first is None or len(first.timed_step) < 2 or first.elapsed_s[-1] <= first.elapsed_s[0]:
        return None
    return (first.timed_step[-1] - first.timed_step[0]) / (first.elapsed_s[-1] - first.elapsed_s[0])


def _median(sample: Sample) -> float | None:
    return float(np.median(sample.values())) if sample.seen else None


def ended(run: Run, attempts: Sequence[Attempt]) -> str:
    """How it ended, as a sentence."""
    tries = f" at attempt {attempts[-1].attempt}" if len(attempts) > 1 else ""
    if run.end is None:
        return "No end was recorded: the launcher was killed, or still runs."
    # Earlier versions wrote a whole card here.
    message = run.end.message.strip().splitlines()[0].strip("- ") if run.end.message.strip() else ""
    why = f": {message.removeprefix('paceline: ')}" if message else ""
    how = run.end.reason.capitalize()
    return f"{how} with exit code {run.end.exit_code}{tries}{'' if how == 'Finished' else why}."


def first_line(run: Run) -> str:
    """How many ranks, and what was set for them."""
    launch = launch_world(run)
    parts = [words.plural(launch, "rank")] if launch else []
    settings = run.info.facts.get("settings")
    if isinstance(settings, dict):
        parts += [f"{name}={value}" for name, value in settings.items()]
    return " · ".join(parts)


def launch_world(run: Run) -> int | None:
    """Ranks on all machines; None when no start was recorded."""
    if run.attempts:
        return run.attempts[-1].world
    return run.sessions[-1].world if run.sessions else None


def rank_ended(rank: RankExit) -> str:
    """As `exited with code 0`, `killed by signal 9`, `stopped by the launcher`."""
    if rank.exit_code is None:
        return words.NOT_OBSERVED
    if rank.stopped and rank.exit_code != 0:
        return f"stopped by the launcher ({rank.exit_code})"
    return f"killed by signal {-rank.exit_code}" if rank.exit_code < 0 else f"exited with code {rank.exit_code}"


def _output(run: Path, attempt: Attempt) -> list[Output]:
    if attempt.logs is None:
        return []
    first = attempt.cause.rank if attempt.cause else None
    ranks = sorted(attempt.ranks, key=lambda each: (each.rank != first, each.rank))[:_MAX_RANKS]
    found = []
    for each in ranks:
        for name in _FILES:
            path = run / attempt.logs / str(each.local_rank) / name
            if path.is_file() and path.stat().st_size:
                found.append(_read(path, each.rank, f"{attempt.logs}/{each.local_rank}/{name}"))
    return found


def _read(path: Path, rank: int, name: str) -> Output:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [shown for line in text.split("\n") if (shown := as_shown(line))]
    if size > _TAIL_BYTES:
        lines = lines[1:] or lines
    return Output(
        rank=rank, file=name, size_bytes=size, lines=lines[-_LINES:], whole=size <= _TAIL_BYTES and len(lines) <= _LINES
    )


def as_shown(line: str) -> str:
    """A line as a terminal leaves it: after carriage returns the last state, without escapes and control characters."""
    states = [state for state in _ESCAPES.sub("", line).split("\r") if state.strip()]
    text = states[-1] if states else ""
    text = "".join(each if each.isprintable() else "\t" if each == "\t" else "\ufffd" for each in text).rstrip()
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} …"
