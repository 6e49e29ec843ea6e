"""The numbers of one run: a pure function from `Run` to `Summary`.

What was not observed is None. `--format json` is this struct, encoded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir
from paceline.records.target import Target, less_is_better, parse_target
from paceline.report import launch_view, words
from paceline.report.launch_view import Launch, launch_of
from paceline.report.run_record import WARM_UP_STEPS, Run, launcher_files
from paceline.report.thin import Sample
from paceline.stats.intervals import median_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A metric at one evaluation."""

    value: float
    count: float
    """What the mean was taken over."""
    step: int
    epoch: float
    samples: int
    elapsed_s: float


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of the evaluation set over the run."""

    name: str
    less_is_better: bool
    final: Point
    best: Point | None
    """The first of the best; None when no evaluation gave a finite number."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Samples, or what the loss counts, a second of training steps, all ranks together."""

    median: float
    low: float
    """95 % interval of the median, within this run."""
    high: float
    steps: int
    """Steps that it was taken over."""
    how: str


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one kind of work on rank 0."""

    name: str
    seconds: float
    share: float
    """Of the run's training time, 0 to 1."""


class TargetResult(msgspec.Struct, frozen=True, kw_only=True):
    """When a target was met. Evaluations are the only moments at which that can be seen."""

    metric: str
    value: float
    less_is_better: bool
    patience: int
    asked_by: Literal["the run's own settings", "--target"]
    reached: bool | None
    """None when the metric was never evaluated."""
    first: Point | None
    """The first evaluation that met it."""
    held: Point | None
    """The evaluation that completed `patience` in a row."""
    evaluated_before_step: int | None
    """The last evaluation before `first`: the target was met somewhere between the two."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run left things; but for checkpoints nothing says that the file is there."""

    run: str
    events: str
    report: str
    logs: str
    checkpoint: str | None
    """The newest on disk, whatever the events say."""
    checkpoint_bytes: int | None
    checkpoints_on_disk: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a card or a comparison says about one run."""

    name: str
    verb: str
    started_at: str
    first_line: str
    status: Literal["finished", "target", "interrupted", "diverged", "failed", "unknown"]
    """`unknown`: no end was recorded, so it was killed, still goes on, or its events were lost."""
    ended: str
    """How it ended, as a sentence."""
    exit_code: int | None
    headline: str | None
    """The metric to show first: the target's, else accuracy, else the task's first, else the loss."""
    metrics: list[Metric]
    train_loss: float | None
    """Of the last step; None also when it was not a finite number."""
    steps: int | None
    samples: int | None
    epochs: float | None
    elapsed_s: float | None
    """Training time, sessions added up, evaluation and checkpoints included."""
    throughput: Throughput | None
    count_throughput: Throughput | None
    """Of what the loss counts, in `unit`; None where that is samples."""
    unit: str
    """What the loss counts, as the task names it; `counted` when it does not."""
    throughput_overall: float | None
    """Samples over the whole training time, everything included."""
    phases: list[Phase]
    target: TargetResult | None
    """None when no target was set."""
    sessions: int | None
    repeated_steps: int
    evaluations: int
    checkpoints: int
    """Written, as the events tell; `where` says how many are there now."""
    where: Where
    notes: list[str]
    warnings: list[str]
    launch: Launch | None = None
    """Of a run of `paceline run`, whose other numbers are not observed."""

    def metric(self, name: str | None) -> Metric | None:
        """The metric of that name, if it was evaluated."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    @property
    def further(self) -> list[Metric]:
        """The task's metrics beside the headline and the loss, in the order in which they were evaluated."""
        return [metric for metric in self.metrics if _of_the_task(metric.name) and metric.name != self.headline]

    @property
    def main(self) -> Metric | None:
        """The headline metric, if there is one."""
        return self.metric(self.headline)


def summarise(run: Run, target: Target | None = None) -> Summary:
    """The numbers of one run.

    Args:
        run: as loaded.
        target: asked for now; None takes the target that the run was given, if any.
    """
    launch = launch_of(run)
    result = _target(run, target) if launch is None else None
    metrics = [_metric(run, name) for name in run.evaluations.value]
    steps = run.totals.last_step or None
    samples = run.totals.samples or None
    seen = run.elapsed_s is not None and run.elapsed_s > 0
    return Summary(
        name=run.info.name,
        verb=run.info.verb,
        started_at=run.info.started_at,
        first_line=words.first_line(run.info) if launch is None else launch_view.first_line(run),
        status=run.end.reason if run.end else "unknown",
        ended=_ended(run) if launch is None else launch_view.ended(run, launch.attempts),
        exit_code=run.end.exit_code if run.end else None,
        headline=_headline([metric.name for metric in metrics], result),
        metrics=metrics,
        train_loss=_finite(run.totals.last_loss),
        steps=steps,
        samples=samples,
        epochs=_epochs(run),
        # A launcher's time is no training time: the workers' start-up is in it.
        elapsed_s=run.elapsed_s if launch is None else None,
        throughput=_throughput(run.rates),
        count_throughput=_throughput(run.count_rates),
        unit=(run.info.task.unit if run.info.task is not None else "") or "counted",
        throughput_overall=samples / run.elapsed_s if seen and samples and run.elapsed_s else None,
        phases=_phases(run),
        target=result,
        sessions=len(run.sessions) or None if launch is None else None,
        repeated_steps=run.repeated_steps,
        evaluations=len(run.evaluations.step),
        checkpoints=run.checkpoint_count,
        where=_where(run),
        notes=[note.message for note in run.notes if note.level == "info"],
        warnings=_warnings(run),
        launch=launch,
    )


def _point(run: Run, name: str, index: int) -> Point:
    evaluations = run.evaluations
    return Point(
        value=float(evaluations.value[name][index]),
        count=float(evaluations.count[name][index]),
        step=int(evaluations.step[index]),
        epoch=float(evaluations.epoch[index]),
        samples=int(evaluations.samples[index]),
        elapsed_s=float(evaluations.elapsed_s[index]),
    )


def _metric(run: Run, name: str) -> Metric:
    values = run.evaluations.value[name]
    down = less_is_better(name)
    best = None
    if np.isfinite(values).any():
        ranked = np.where(np.isfinite(values), values, math.inf if down else -math.inf)
        best = _point(run, name, int(ranked.argmin() if down else ranked.argmax()))
    # Not every evaluation need hold every metric: the last that has it, by its count, is the final one.
    held = np.flatnonzero(np.isfinite(run.evaluations.count[name]))
    return Metric(name=name, less_is_better=down, final=_point(run, name, int(held[-1])), best=best)


def _target(run: Run, asked: Target | None) -> TargetResult | None:
    target = asked or _target_of(run.info.config)
    if target is None:
        return None
    values = run.evaluations.value.get(target.metric)
    first, held = (None, None) if values is None else _met(values, target)
    return TargetResult(
        metric=target.metric,
        value=target.value,
        less_is_better=less_is_better(target.metric),
        patience=target.patience,
        asked_by="--target" if asked else "the run's own settings",
        reached=None if values is None else first is not None,
        first=None if first is None else _point(run, target.metric, first),
        held=None if held is None else _point(run, target.metric, held),
        evaluated_before_step=int(run.evaluations.step[first - 1]) if first else None,
    )


def _headline(names: list[str], target: TargetResult | None) -> str | None:
    wanted = [target.metric] if target else []
    own = [name for name in names if _of_the_task(name)]
    others = [name for name in own if not less_is_better(name)]
    return next((name for name in [*wanted, "accuracy", *others, *own, *names] if name in names), None)


def _of_the_task(name: str) -> bool:
    """Whether a metric is the task's own: not its loss, a monitor, or what raw weights have beside an average."""
    return name not in ("loss", "sharpness", "stability_limit") and not name.startswith("raw_")


def _throughput(rates: Sample) -> Throughput | None:
    values = rates.values()
    result = median_interval(values)
    if result is None:
        return None
    median, low, high = result
    taken = len(values)
    thinned = "" if taken == rates.seen else f", every {round(rates.seen / taken)}th of {rates.seen:,}"
    return Throughput(
        median=median,
        low=low,
        high=high,
        steps=taken,
        how=(
            f"median over {taken:,} single steps{thinned}, 95 % interval of that median within this run; evaluation, "
            f"checkpoints and the first {WARM_UP_STEPS} steps of each session left out"
        ),
    )


def _phases(run: Run) -> list[Phase]:
    total = run.elapsed_s
    if not total or not run.totals.steps:
        return []
    totals = run.totals
    seconds = {
        "data": totals.data_s,
        "forward": totals.forward_s,
        "backward + sync": totals.backward_s,
        "update": totals.update_s,
        "evaluation": float(np.nansum(run.evaluations.duration_s)),
        "checkpoint": run.checkpoint_s,
    }
    # Clocks are read one after the other, so the rest may come out a rounding error below nothing.
    seconds["other"] = max(0.0, total - sum(seconds.values()))
    whole = max(total, sum(seconds.values()))
    return [Phase(name=name, seconds=value, share=value / whole) for name, value in seconds.items()]


def _epochs(run: Run) -> float | None:
    if run.info.task is not None and run.info.task.train_samples and run.totals.samples:
        return run.totals.samples / run.info.task.train_samples
    return float(run.evaluations.epoch[-1]) if len(run.evaluations.epoch) else None


def _ended(run: Run) -> str:
    at = f"step {run.totals.last_step:,}" if run.totals.last_step else "its first step"
    if run.end is None:
        return _without_end(run, "before its first step" if not run.totals.last_step else f"after {at}")
    known = {
        "finished": f"Finished at {at}.",
        "target": f"Met its target and stopped at {at}.",
        "interrupted": f"Interrupted at {at}.",
        "diverged": f"Diverged at {at}: the loss is not a finite number.",
        "failed": f"Failed at {at}.",
    }
    sentence = known.get(run.end.reason, f"Ended at {at}: {run.end.reason}.")
    return f"{sentence} {run.end.message}".strip()


def _without_end(run: Run, when: str) -> str:
    if run.live:
        return f"It is still running, {when}."
    if not run.sessions:
        return f"No end was recorded {when}: nor is there an event of its start, so how it ended is not known."
    if any("damaged" in remark for remark in run.remarks):
        return f"No end was recorded {when}: it was killed, or the event is among the damaged ones."
    if run.live is None:
        return f"No end was recorded {when}: it was killed, or still goes on."
    return f"No end was recorded {when}: it was killed."


def newest_checkpoint(summary: Summary) -> str:
    """The newest checkpoint on disk, in words."""
    where = summary.where
    if where.checkpoint is not None:
        size = words.size(where.checkpoint_bytes or 0)
        return f"{where.checkpoint} ({size}, {words.integer(where.checkpoints_on_disk)} on disk)"
    if summary.checkpoints:
        return f"none on disk ({words.integer(summary.checkpoints)} written)"
    return "none was completed"


def _where(run: Run) -> Where:
    place = RunDir(run.path)
    newest = run.on_disk[0] if run.on_disk else None
    return Where(
        run=str(place.path),
        events=str(next(iter(launcher_files(run.path)), place.events(0))),
        report=str(place.report),
        logs=str(place.logs),
        checkpoint=str(newest.path) if newest else None,
        checkpoint_bytes=newest.size_bytes if newest else None,
        checkpoints_on_disk=len(run.on_disk),
    )


def _warnings(run: Run) -> list[str]:
    found = [note.message for note in run.notes if note.level == "warning"]
    found += run.remarks
    if run.totals.strange_losses:
        found.append(f"{words.plural(run.totals.strange_losses, 'step')} had a loss that is not a finite number")
    missing = run.totals.last_step - run.totals.steps
    if missing > 0 and not any("damaged" in remark for remark in run.remarks):
        found.append(f"{words.plural(missing, 'step')} left no record")
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _target_of(config: dict[str, Any]) -> Target | None:
    """The target that a run was given, None when it had none or wrote it in a way that is not known here."""
    given = config.get("target")
    patience = config.get("patience")
    patience = patience if isinstance(patience, int) and patience >= 1 else 1
    try:
        if isinstance(given, str) and given:
            target = parse_target(given)
        elif isinstance(given, dict):
            target = msgspec.convert({"metric": given["metric"], "value": given["value"]}, Target)
        else:
            return None
    except (PacelineError, KeyError, msgspec.ValidationError):
        return None
    return Target(metric=target.metric, value=target.value, patience=patience)


def _met(values: NDArray[np.float64], target: Target) -> tuple[int | None, int | None]:
    """When the target was met.

    Args:
        values: the metric at each evaluation, shape (k,); NaN meets nothing.

    Returns:
        Index of the first evaluation that meets it, and of the one that completes the first `patience` in a row;
        None where there is no such evaluation.
    """
    good = values <= target.value if less_is_better(target.metric) else values >= target.value
    first = int(np.argmax(good)) if good.any() else None
    row = 0
    for index, one in enumerate(good):
        row = row + 1 if one else 0
        if row == target.patience:
            return first, index
    return first, None
