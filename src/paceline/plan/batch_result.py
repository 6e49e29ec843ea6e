"""From runs, noise and times to the result of `paceline plan batch`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.plan import recipes
from paceline.plan.advise import Recipe, Wish, recommend
from paceline.plan.batch import CONFIDENCE, table, usual_batches
from paceline.plan.branch import Settled
from paceline.plan.refits import Predictor
from paceline.plan.rows import reached_of, require_one_training, train_info
from paceline.plan.run_noise import record, stretch
from paceline.plan.speed_caveats import listed
from paceline.plan.steps import Branched, Steps, at_most_data, steps_of_run, until, usable
from paceline.records.errors import PacelineError
from paceline.records.gradients import read_gradient_norms
from paceline.records.plan_results import BatchPoint, BatchResult, BatchRow, Branch, Evidence, HeldOut
from paceline.records.rundir import RunDir
from paceline.records.schema import RunInfo
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
        times: of a step; None where they are not known.
        settled: what branches said; None without them.
        branches: them.
    """

    workers: Sequence[int]
    efficiency: float
    settings: recipes.TrainSettings
    target: Target | None = None
    times: Predictor | None = None
    settled: Settled | None = None
    branches: Sequence[Branch] = ()


@dataclass(frozen=True)
class _Found:
    """What the runs say.

    Attributes:
        base: the run at the base batch.
        info: its run.json.
        steps: of any batch.
        points: runs to a target, those that missed it among them.
        windows: of the noise of `base`.
        recipe_at: the training that is recommended at a batch.
    """

    base: Path
    info: RunInfo
    steps: Steps
    points: Sequence[BatchPoint]
    windows: Sequence[Window]
    recipe_at: Callable[[int], Recipe]

    @property
    def missed(self) -> set[int]:
        """Batches at which a run did not meet the target."""
        return {one.batch for one in self.points if one.steps is None}

    @property
    def largest(self) -> int:
        """The largest batch at which all runs met the target; 0 without a target."""
        return max({one.batch for one in self.points} - self.missed, default=0)


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
    reached = usable(points, LEAST_BATCHES)
    hyperbola = fit([one.batch for one in reached], [one.steps or math.nan for one in reached], confidence=CONFIDENCE)
    base = min(reached, key=lambda one: one.batch)
    found = _Found(
        base=Path(base.run),
        info=train_info(Path(base.run)),
        steps=Steps(float(base.batch), hyperbola=hyperbola),
        points=points,
        windows=noise_windows(Path(base.run)),
        recipe_at=lambda batch: recipes.of_runs(reached, batch, question.settings),
    )
    return _answer(found, question)


def from_noise(path: Path, question: Question) -> BatchResult:
    """Of one run: a guess from its noise, between two bounds.

    Raises:
        PacelineError: it recorded none, or did not meet the target.
    """
    info = train_info(path)
    assert info.batch is not None
    windows = at_most_data(noise_windows(path))
    weighed, total = windows, float(windows[-1].last) if windows else 0.0
    points: list[BatchPoint] = []
    if windows and question.target is not None:
        points = [_reached(path, question.target)]
        total = _require_reached(points[0], question.target)
        weighed = until(windows, total)
    branched = None
    if windows and question.settled is not None:
        last = windows[-1].found
        branched = Branched(question.settled.largest, Interval(last.value, min(last.low, last.value), last.high))
    steps = steps_of_run(weighed, float(info.batch.global_batch), total, branched)
    found = _Found(
        base=path,
        info=info,
        steps=steps,
        points=points,
        windows=weighed,
        recipe_at=lambda batch: recipes.of_one(info, steps, batch, question.settings),
    )
    return _answer(found, question)


def _reached(path: Path, target: Target) -> BatchPoint:
    return reached_of(path, target.metric, target.value, rising=not less_is_better(target.metric))


def _require_reached(one: BatchPoint, target: Target) -> float:
    if one.steps is None:
        raise PacelineError(
            f"{one.run} never met {target.metric} {target.value:g}",
            why="how many steps another batch takes to a target is guessed from those that the run took to it",
            hint="leave --target out, or name one that the run met",
        )
    return one.steps


def _answer(found: _Found, question: Question) -> BatchResult:
    info, steps, target = found.info, found.steps, question.target
    assert info.task is not None
    assert info.batch is not None
    hyperbola = steps.hyperbola
    most = info.task.train_samples // 2
    usual = usual_batches(steps.base, hyperbola.critical.value if hyperbola else None, most)
    batches = sorted({*usual, *(one.batch for one in found.points)})
    rows = table(steps, question.times, batches, question.workers, found.missed)
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
        critical=hyperbola.critical.estimate if hyperbola else None,
        least_steps=hyperbola.least_steps.estimate if hyperbola else None,
        least_samples=hyperbola.least_samples.estimate if hyperbola else None,
        worst_error=hyperbola.worst if hyperbola else None,
        points=list(found.points),
        noise=[stretch(window) for window in found.windows],
        run_noise=record(found.windows, float(info.batch.global_batch), used=hyperbola is None),
        table=rows,
        recommendation=recommend(_allowed(rows, found, question.settled), steps, wish),
        branches=list(question.branches),
        warnings=list(_warnings(found, question, batches)),
        evidence=Evidence(
            runs=[one.run for one in found.points] or [str(found.base)],
            held_out=_held_out(found),
            confidence=CONFIDENCE,
            notes=list(_notes(found, question)),
        ),
    )


def _allowed(rows: Sequence[BatchRow], found: _Found, settled: Settled | None) -> list[BatchRow]:
    """Rows that may be recommended: at none of these batches did a run miss the target, nor, above all that met it, at
    a smaller one; and no branch lost anything. Where runs at several batches tell of steps, none above the largest."""
    end = min((batch for batch in found.missed if batch > found.largest), default=math.inf)
    most = settled.largest if settled is not None and settled.bounded else math.inf
    if found.steps.hyperbola is not None:
        most = min(most, found.largest)
    return [row for row in rows if not row.missed and row.batch < end and row.batch <= most]


def _held_out(found: _Found) -> list[HeldOut]:
    hyperbola = found.steps.hyperbola
    if hyperbola is None or hyperbola.held_out is None:
        return []
    taken = [one.steps for one in found.points if one.batch == found.largest and one.steps is not None]
    measured = sum(taken) / len(taken)
    what = f"steps at a batch of {found.largest:,}, from the smaller ones"
    return [HeldOut(what=what, measured=measured, predicted=measured * (1 + hyperbola.held_out))]


def _warnings(found: _Found, question: Question, batches: Sequence[int]) -> Iterator[str]:
    hyperbola, settled, times = found.steps.hyperbola, question.settled, question.times
    if found.missed:
        yield (
            f"runs at a batch of {listed(sorted(found.missed))} did not meet the target: these sizes are left out of "
            "the fit and of the advice"
        )
    if hyperbola is not None and hyperbola.degrees < FEW:
        yield (
            f"{hyperbola.degrees + 2} runs leave hardly anything to judge the fit by, so that intervals are wide: more "
            "seeds or batch sizes narrow them"
        )
    if hyperbola is not None and (untried := [batch for batch in batches if batch > found.largest]):
        # bench/plan_fashion.py: twice the largest batch took twice the steps that the curve had said, far outside.
        yield (
            f"no run has a batch above {found.largest:,}: steps at {listed(untried)} are the curve's, outside what its "
            "intervals can tell, and it may take many more"
        )
    if hyperbola is None:
        beyond = "" if settled is None else f" at a batch above {settled.largest:,}"
        yield f"steps{beyond} are guessed from one run's noise; they lie between linear scaling and no gain at all"
    if times is None:
        yield "no times: make a paceline plan speed of short runs, and name its directory with --speed"
    elif far := times.model.farther(question.workers):
        yield (
            f"{listed(far)} workers are far beyond the {times.model.most_workers} that were timed: their times are the "
            "word of the formula alone"
        )
    if settled is not None and not settled.bounded:
        yield f"no branch lost anything up to a batch of {settled.largest:,}: the limit is beyond it"


def _notes(found: _Found, question: Question) -> Iterator[str]:
    if found.points:
        yield "steps between two evaluations are taken from a straight line"
    yield (
        f"statistical: progress of a sample beside one at a batch of {found.steps.base:,.0f}; system: throughput of a "
        "worker beside one alone at that batch"
    )
    schedule = found.info.config.get("schedule") or "constant"
    if question.target is not None and schedule != "constant":
        yield (
            f"the rate of the runs falls over their length (--schedule {schedule}): how many steps a target takes "
            "depends on how long they were meant to be"
        )
    if question.settled is not None:
        largest, limit = question.settled.largest, question.settled.limit
        yield f"branches: up to a batch of {largest:,} the loss after the same samples is within {limit:.4g}"
