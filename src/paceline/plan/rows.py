"""What runs of `paceline train` tell a plan: settings and times, steps to a target, noise. Reads records only."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.plan.step_time import Observed, Setting
from paceline.records.errors import PacelineError, choices
from paceline.records.observed import StepTiming
from paceline.records.plan_results import BatchPoint
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import End, Evaluation, RunInfo, Start, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WARM_UP = 10
"""Steps at the start of each session that are left out: allocators, caches and connections settle in them."""
LEAST_STEPS = 10


def train_info(path: Path, *, or_observed: bool = False) -> RunInfo:
    """run.json of a run that trained.

    Args:
        path: the run.
        or_observed: a script that was watched under `paceline run` is as good.

    Raises:
        PacelineError: not a run directory, or of another verb, or it does not say how its batch was made.
    """
    info = read_info(path)
    trained = info.verb == "train" or (or_observed and info.verb == "run")
    if not trained or info.batch is None or info.topology is None or (info.verb == "train" and info.task is None):
        raise PacelineError(
            f"{path} has no batch in its run.json" if trained else f"{path} is no run of paceline train",
            why="plans are made from trainings that recorded their steps",
            hint="paceline train TASK --steps 60 makes a short one",
        )
    return info


def timing_of(path: Path) -> Observed:
    """Setting and times of one run, from rank 0's events: whole batches only, the first steps of each session left out.

    Raises:
        PacelineError: not a training, or too short.
    """
    info = train_info(path, or_observed=True)
    assert info.batch is not None
    assert info.topology is not None
    times = _step_times(path, info.batch.global_batch)
    if len(times) < LEAST_STEPS:
        raise PacelineError(
            f"{path} has {len(times)} steps that can be timed, and {LEAST_STEPS} are needed",
            why=f"the first {WARM_UP} steps of a session and short batches are left out",
            hint=f"--steps {WARM_UP + 5 * LEAST_STEPS}",
        )
    world = info.topology.world
    setting = Setting(
        workers=world,
        micro=info.batch.per_rank,
        accumulation=info.batch.accumulation,
        per_node=None if info.topology.nodes == 1 else -(-world // info.topology.nodes),
    )
    low, median, high = np.quantile(times, [0.25, 0.5, 0.75])
    return Observed(
        setting=setting,
        step_s=float(median),
        times=times,
        spread=float((high - low) / 2 / median),
        size_bytes=int(info.facts.get("sync_bytes_per_step", 4 * info.task.parameters if info.task else 0)),
        run=str(path),
    )


def _step_times(path: Path, batch: int) -> Floats:
    times: list[float] = []
    skip, before = WARM_UP, 0
    for event in EventStream(RunDir(path).events()):
        if isinstance(event, Start):
            skip = WARM_UP
            continue
        if isinstance(event, Step):
            whole = event.samples - before == batch
            took: float | None = event.data_s + event.forward_s + event.backward_s + event.update_s
        elif isinstance(event, StepTiming):
            # What came between two samples is not known, so each counts as a whole batch, as nearly all are.
            whole = event.sampled or event.samples is None or event.samples - before == batch
            took = event.duration_s
        else:
            continue
        before = before if event.samples is None else event.samples
        if skip:
            skip -= 1
        elif whole and took is not None:
            times.append(took)
    return np.array(times, dtype=np.float64)


_EITHER: dict[str, Callable[[RunInfo], Any]] = {
    "task": lambda info: info.name,
    "number of parameters": lambda info: info.task.parameters if info.task else None,
    "precision": lambda info: info.precision,
}
_TIMES = ("optimizer", "compress", "batch_norm", "ghost_size", "augment", "clip_norm", "average", "monitor", "width")
"""Settings of a run that decide how long a step takes, besides its batch and workers."""
_NOT_OF_A_TRAINING = {
    *("task", "precision", "seed", "target", "patience", "eval_every", "monitor", "monitor_samples"),
    *("global_batch", "accumulate", "workers", "epochs", "steps", "keep_updates"),
    *("lr", "base_batch", "warmup", "warmup_shape", "warmup_from"),
    *("noise_every", "resume", "checkpoint_every", "keep", "run_dir", "data_dir", "loader_workers", "grace"),
    "save_signal",
    *("tensorboard", "format", "deterministic"),
}
"""Settings that may differ between runs of one training: batch and length, the rate and how it is reached (larger
batches are tuned), and what has no influence on the weights. All others decide how many steps a target takes."""


def require_alike(paths: Sequence[Path]) -> RunInfo:
    """The first run's run.json, when nothing but batch and workers decides how long the runs' steps take.

    Raises:
        PacelineError: they are not; the message names all that differs.
    """
    infos = [train_info(path) for path in paths]
    device = {"device": lambda info: info.topology.device_name if info.topology else None}
    _require_same(infos, _EITHER | device, _TIMES)
    return infos[0]


def require_one_training(paths: Sequence[Path]) -> RunInfo:
    """The first run's run.json, when nothing but batch, rate, seed and length tells the runs' trainings apart.

    Raises:
        PacelineError: they are not; the message names all that differs.
    """
    infos = [train_info(path) for path in paths]
    names = {name for info in infos for name in info.config}
    _require_same(infos, _EITHER, sorted(names - _NOT_OF_A_TRAINING))
    return infos[0]


def _require_same(
    infos: Sequence[RunInfo], facts: Mapping[str, Callable[[RunInfo], Any]], settings: Sequence[str]
) -> None:
    found = {what: {str(of(info)) for info in infos} for what, of in facts.items()}
    for name in settings:  # one that an older version did not know is not compared
        flag = "--" + name.replace("_", "-")
        found[flag] = {str(info.config[name]) for info in infos if name in info.config}
    differing = [f"{what}: {', '.join(sorted(values))}" for what, values in found.items() if len(values) > 1]
    if differing:
        raise PacelineError(
            f"the runs differ in their {'; '.join(differing)}",
            why="a plan is of one training, of which only batch and workers change",
            hint="leave out the runs that do not belong",
        )


def reached_of(path: Path, metric: str, value: float, *, rising: bool) -> BatchPoint:
    """When a run met `metric` >= `value` (or <=, when not `rising`), or that it did not.

    An evaluation only says that a target had been met before it. Between the one before and this one a straight line
    is drawn, so that the result does not depend on how often a run was evaluated; a target that the first evaluation
    meets is counted there.

    A run that diverged before its first evaluation did not meet it.

    Raises:
        PacelineError: not a training, or the metric was not evaluated.
    """
    info = train_info(path)
    assert info.batch is not None
    points: list[tuple[int, int, float]] = []
    metrics: set[str] = set()
    diverged = False
    for event in EventStream(RunDir(path).events()):
        if isinstance(event, Evaluation):
            metrics.update(event.metrics)
            if metric in event.metrics:
                points.append((event.step, event.samples, event.metrics[metric].value))
        elif isinstance(event, End):
            diverged = event.reason == "diverged"
    if not points and (metrics or not diverged):
        raise _no_evaluation(path, metric, metrics)
    found = _crossing(points, value, rising)
    return BatchPoint(
        run=str(path),
        batch=info.batch.global_batch,
        seed=int(info.config.get("seed", 0)),
        steps=None if found is None else found[0],
        samples=None if found is None else found[1],
    )


def _no_evaluation(path: Path, metric: str, metrics: Collection[str]) -> PacelineError:
    if metrics:
        return PacelineError(f"{path} has no evaluation of {metric}", hint=f"the task has {choices(sorted(metrics))}")
    return PacelineError(
        f"{path} has no evaluation of {metric}",
        why="it ended before its first evaluation",
        hint="leave the run out, or go on with it: paceline train --resume",
    )


def _crossing(points: Sequence[tuple[int, int, float]], value: float, rising: bool) -> tuple[float, float] | None:
    """Steps and samples; an evaluation that is no finite number says nothing, and is passed over."""
    sign = 1.0 if rising else -1.0
    before: tuple[int, int, float] | None = None
    for step, samples, measured in points:
        if not math.isfinite(measured):
            continue
        if sign * (measured - value) >= 0:
            if before is None:
                return float(step), float(samples)
            share = (value - before[2]) / (measured - before[2])
            return before[0] + share * (step - before[0]), before[1] + share * (samples - before[1])
        before = (step, samples, measured)
    return None
