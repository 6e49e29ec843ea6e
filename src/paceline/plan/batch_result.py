"""From runs, noise and times to the result of `paceline plan batch`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.plan import recipes
from paceline.plan.advise import Recipe, Wish, recommend
from paceline.plan.batch import CONFIDENCE, Times, table, times_of, usual_batches
from paceline.plan.branch import Settled
from paceline.plan.rows import Reached, reached_of, require_one_training, train_info
from paceline.plan.run_noise import record, stretch
from paceline.plan.steps import Branched, Steps, at_most_data, sort_out, steps_of_run, until
from paceline.records.errors import PacelineError
from paceline.records.gradients import read_gradient_norms
from paceline.records.plan_results import (
    BatchPoint,
    BatchResult,
    BatchRow,
    Branch,
    Estimate,
    Evidence,
    HeldOut,
    SpeedResult,
    estimate,
)
from paceline.records.rundir import RunDir
from paceline.records.target import Target, less_is_better
from paceline.stats.hyperbola import LEAST_BATCHES, fit
from paceline.stats.intervals import Interval
from paceline.stats.noise_scale import Window, estimates, over_training

FEW = 3
"""Runs beyond the two that a curve goes through anyway: with fewer, Student's t is far above what it tends to."""


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        workers: of the table.
        efficiency: that a recommended setting must have.
        settings: of `paceline train`, for the recommended command.
        target: None without one.
        speed: a plan of speed; None where times are not known.
        settled: what branches said; None without them.
        branches: them.
    """

    workers: Sequence[int]
    efficiency: float
    settings: recipes.TrainSettings
    target: Target | None = None
    speed: SpeedResult | None = None
    settled: Settled | None = None
    branches: Sequence[Branch] = ()


@dataclass(frozen=True)
class _Found:
    """What the runs say.

    Attributes:
        base: the run at the base batch.
        steps: of any batch.
        points: runs to a target, those that missed it among them.
        reached: those of them that the steps are fitted to.
        windows: of the noise of `base`.
        recipe_at: the training that is recommended at a batch.
    """

    base: Path
    steps: Steps
    points: Sequence[Reached]
    reached: Sequence[Reached]
    windows: Sequence[Window]
    recipe_at: Callable[[int], Recipe]

    @property
    def missed(self) -> set[int]:
        """Batches at which a run did not meet the target."""
        return {one.batch for one in self.points if one.steps is None}


def noise_windows(path: Path) -> list[Window]:
    """The noise scale along a run, in windows; none where it was not recorded."""
    numbers, noise, signal = estimates(read_gradient_norms(RunDir(path)))
    task = train_info(path).task
    return over_training(numbers, noise, signal, samples=task.train_samples if task else None, confidence=CONFIDENCE)


def from_runs(paths: Sequence[Path], question: Question) -> BatchResult:
    """Of runs to a target at several batches.

    Raises:
        PacelineError: they are of different trainings, too few met it, or all batches lie on one side of the knee.
    """
    require_one_training(paths)
    assert question.target is not None
    points = [_reached(path, question.target) for path in paths]
    reached = sort_out(points, LEAST_BATCHES).reached
    hyperbola = fit([one.batch for one in reached], [one.steps or math.nan for one in reached], confidence=CONFIDENCE)
    base = min(reached, key=lambda one: one.batch)
    return _answer(
        _Found(
            base=base.path,
            steps=Steps(float(base.batch), hyperbola=hyperbola),
            points=points,
            reached=reached,
            windows=noise_windows(base.path),
            recipe_at=lambda batch: recipes.of_runs(reached, batch, question.settings),
        ),
        question,
    )


def from_noise(path: Path, question: Question) -> BatchResult:
    """Of one run: a guess from its noise, between two bounds.

    Raises:
        PacelineError: it recorded none, or did not meet the target.
    """
    info = train_info(path)
    assert info.batch is not None
    windows = at_most_data(noise_windows(path))
    weighed, total = windows, float(windows[-1].last) if windows else 0.0
    points: list[Reached] = []
    if windows and question.target is not None:
        points = [_reached(path, question.target)]
        total = _require_reached(points[0], question.target)
        weighed = until(windows, total)
    branched = None
    if windows and question.settled is not None:
        last = windows[-1].found
        branched = Branched(question.settled.largest, Interval(last.value, min(last.low, last.value), last.high))
    steps = steps_of_run(weighed, float(info.batch.global_batch), total, branched)
    return _answer(
        _Found(
            base=path,
            steps=steps,
            points=points,
            reached=points,
            windows=weighed,
            recipe_at=lambda batch: recipes.of_one(info, steps, batch, question.settings),
        ),
        question,
    )


def _reached(path: Path, target: Target) -> Reached:
    return reached_of(path, target.metric, target.value, rising=not less_is_better(target.metric))


def _require_reached(one: Reached, target: Target) -> float:
    if one.steps is None:
        raise PacelineError(
            f"{one.path} never met {target.metric} {target.value:g}",
            why="how many steps another batch takes to a target is guessed from those that the run took to it",
            hint="leave --target out, or name one that the run met",
        )
    return one.steps


def _answer(found: _Found, question: Question) -> BatchResult:
    info = train_info(found.base)
    assert info.task is not None
    steps, hyperbola, target = found.steps, found.steps.hyperbola, question.target
    times = times_of(question.speed) if question.speed is not None else None
    most = info.task.train_samples // 2
    batches = usual_batches(steps.base, hyperbola.critical.value if hyperbola else None, most)
    batches = sorted({*batches, *(one.batch for one in found.points)})
    rows = table(steps, times, batches, question.workers, found.missed)
    wish = Wish(
        task=str(info.config.get("task", info.name)),
        train_samples=info.task.train_samples,
        recipe_at=found.recipe_at,
        least_efficiency=question.efficiency,
        target=f"{target.metric}={target.value:g}" if target else None,
    )
    return BatchResult(
        task=info.name,
        metric=target.metric if target else "",
        target=target.value if target else None,
        critical=_record(hyperbola.critical) if hyperbola else None,
        least_steps=_record(hyperbola.sum_of(1, 0)) if hyperbola else None,
        least_samples=_record(hyperbola.sum_of(0, 1)) if hyperbola else None,
        worst_error=hyperbola.worst if hyperbola else None,
        points=[
            BatchPoint(run=str(one.path), batch=one.batch, seed=one.seed, steps=one.steps, samples=one.samples)
            for one in found.points
        ],
        noise=[stretch(window) for window in found.windows],
        run_noise=record(found.windows, _batch_of(found.base), used=hyperbola is None),
        table=rows,
        recommendation=recommend(_allowed(rows, found, question.settled), steps, wish),
        branches=list(question.branches),
        warnings=_warnings(found, question, times, batches),
        evidence=Evidence(
            runs=[str(one.path) for one in found.points] or [str(found.base)],
            held_out=_held_out(found),
            confidence=CONFIDENCE,
            notes=_notes(found, question),
        ),
    )


def _allowed(rows: Sequence[BatchRow], found: _Found, settled: Settled | None) -> list[BatchRow]:
    """Rows that may be recommended: at none of these batches did a run miss the target, nor, above all that met it, at
    a smaller one; and no branch lost anything. Where runs at several batches tell of steps, none above the largest."""
    largest = max((one.batch for one in found.reached), default=0)
    end = min((batch for batch in found.missed if batch > largest), default=math.inf)
    most = settled.largest if settled is not None and settled.bounded else math.inf
    if found.steps.hyperbola is not None:
        most = min(most, largest)
    return [row for row in rows if not row.missed and row.batch < end and row.batch <= most]


def _record(of: Interval) -> Estimate:
    return estimate(of.value, of.low, of.high)


def _batch_of(path: Path) -> float:
    batch = train_info(path).batch
    assert batch is not None
    return float(batch.global_batch)


def _held_out(found: _Found) -> list[HeldOut]:
    hyperbola = found.steps.hyperbola
    if hyperbola is None or hyperbola.held_out is None:
        return []
    largest = max(one.batch for one in found.reached)
    taken = [one.steps for one in found.reached if one.batch == largest and one.steps is not None]
    measured = sum(taken) / len(taken)
    what = f"steps at a batch of {largest:,}, from the smaller ones"
    return [HeldOut(what=what, measured=measured, predicted=measured * (1 + hyperbola.held_out))]


def _warnings(found: _Found, question: Question, times: Times | None, batches: Sequence[int]) -> list[str]:
    warnings = []
    if found.missed:
        warnings.append(
            f"runs at a batch of {_listed(found.missed)} did not meet the target: these sizes are left out of the fit "
            "and of the advice"
        )
    hyperbola, settled = found.steps.hyperbola, question.settled
    if hyperbola is not None and hyperbola.degrees < FEW:
        warnings.append(
            f"{len(found.reached)} runs leave hardly anything to judge the fit by, so that intervals are wide: more "
            "seeds or batch sizes narrow them"
        )
    largest = max((one.batch for one in found.reached), default=0)
    if hyperbola is not None and (untried := {batch for batch in batches if batch > largest}):
        # bench/plan_fashion.py: twice the largest batch took twice the steps that the curve had said, far outside.
        warnings.append(
            f"no run has a batch above {largest:,}: steps at {_listed(untried)} are the curve's, outside what its "
            "intervals can tell, and it may take many more"
        )
    if hyperbola is None:
        beyond = "" if settled is None else f" at a batch above {settled.largest:,}"
        warnings.append(
            f"steps{beyond} are guessed from one run's noise; they lie between linear scaling and no gain at all"
        )
    if times is None:
        warnings.append("no times: make a paceline plan speed of short runs, and name its directory with --speed")
    elif far := times.farther(question.workers):
        warnings.append(
            f"{_listed(far)} workers are far beyond the {times.model.most_workers} that were timed: their times are "
            "the word of the formula alone"
        )
    if settled is not None and not settled.bounded:
        warnings.append(f"no branch lost anything up to a batch of {settled.largest:,}: the limit is beyond it")
    return warnings


def _listed(numbers: Sequence[int] | set[int]) -> str:
    return ", ".join(f"{number:,}" for number in sorted(numbers))


def _notes(found: _Found, question: Question) -> list[str]:
    base = f"{found.steps.base:,.0f}"
    notes = ["steps between two evaluations are taken from a straight line"] if found.points else []
    notes.append(
        f"statistical: progress of a sample beside one at a batch of {base}; system: throughput of a worker beside one "
        "alone at that batch"
    )
    schedule = train_info(found.base).config.get("schedule") or "constant"
    if question.target is not None and schedule != "constant":
        notes.append(
            f"the rate of the runs falls over their length (--schedule {schedule}): how many steps a target takes "
            "depends on how long they were meant to be"
        )
    if question.settled is not None:
        largest, limit = question.settled.largest, question.settled.limit
        notes.append(f"branches: up to a batch of {largest:,} the loss after the same samples is within {limit:.4g}")
    return notes
