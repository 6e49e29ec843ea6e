"""From runs, noise and times to the result of `paceline plan batch`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.plan.advise import Wish, recommend
from paceline.plan.batch import table, usual_batches
from paceline.plan.branch import Settled
from paceline.plan.rows import Reached, reached_of, train_info
from paceline.plan.step_time import StepTime
from paceline.plan.steps import Steps, at_most_data, sort_out, steps_of_run
from paceline.records.gradients import read_gradient_norms
from paceline.records.plan import (
    BatchPoint,
    BatchResult,
    Branch,
    Estimate,
    Evidence,
    HeldOut,
    NoisePoint,
    estimate,
)
from paceline.records.rundir import RunDir
from paceline.records.target import Target, less_is_better
from paceline.stats.hyperbola import LEAST_BATCHES, Hyperbola, fit
from paceline.stats.intervals import Interval
from paceline.stats.noise_scale import Window, estimates, over_training

CONFIDENCE = 0.9


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        workers: of the table.
        efficiency: that a recommended setting must have.
        target: None without one.
        speed: of a step; None where it is not known.
        settled: what branches said; None without them.
        branches: them.
    """

    workers: Sequence[int]
    efficiency: float
    target: Target | None = None
    speed: StepTime | None = None
    settled: Settled | None = None
    branches: Sequence[Branch] = ()


def noise_windows(path: Path) -> list[Window]:
    """The noise scale along a run, in windows; none where it was not recorded."""
    numbers, noise, signal = estimates(read_gradient_norms(RunDir(path)))
    task = train_info(path).task
    return over_training(numbers, noise, signal, samples=task.train_samples if task else None, confidence=CONFIDENCE)


def from_runs(paths: Sequence[Path], question: Question) -> BatchResult:
    """Of runs to a target at several batches.

    Raises:
        PacelineError: too few met it, or all batches lie on one side of the knee.
    """
    target = question.target
    assert target is not None
    rising = not less_is_better(target.metric)
    found = [reached_of(path, target.metric, target.value, rising=rising) for path in paths]
    sorted_out = sort_out(found, LEAST_BATCHES)
    hyperbola = fit(
        [one.batch for one in sorted_out.reached],
        [one.steps or math.nan for one in sorted_out.reached],
        confidence=CONFIDENCE,
    )
    base = min(sorted_out.reached, key=lambda one: one.batch)
    steps = Steps("hyperbola", float(base.batch), hyperbola=hyperbola)
    return _answer(base.path, steps, question, found, hyperbola)


def from_noise(path: Path, question: Question) -> BatchResult:
    """Of one run: a guess from its noise, between two bounds.

    Raises:
        PacelineError: it recorded none.
    """
    info = train_info(path)
    assert info.batch is not None
    windows = at_most_data(noise_windows(path))
    total = float(windows[-1].last) if windows else 0.0
    if question.target is not None:
        rising = not less_is_better(question.target.metric)
        one = reached_of(path, question.target.metric, question.target.value, rising=rising)
        total = one.steps or total
    steps = steps_of_run(windows, float(info.batch.global_batch), total)
    return _answer(path, steps, question, [], None)


def _answer(
    base: Path, steps: Steps, question: Question, found: Sequence[Reached], hyperbola: Hyperbola | None
) -> BatchResult:
    info = train_info(base)
    assert info.task is not None
    critical = hyperbola.critical if hyperbola is not None else None
    batches = usual_batches(steps.base, critical.value if critical else None, info.task.train_samples // 2)
    batches = sorted({*batches, *(one.batch for one in found)})
    rows = table(steps, question.speed, batches, question.workers)
    allowed = rows
    if question.settled is not None and question.settled.bounded:
        allowed = [row for row in rows if row.batch <= question.settled.largest]
    target = question.target
    wish = Wish(
        task=str(info.config.get("task", info.name)),
        optimizer=str(info.config.get("optimizer") or "sgd"),
        lr=float(info.facts.get("lr", info.config.get("lr") or 0.0)),
        least_efficiency=question.efficiency,
        target=f"{target.metric}={target.value:g}" if target else None,
    )
    return BatchResult(
        task=info.name,
        metric=target.metric if target else "",
        target=target.value if target else None,
        critical=_record(critical),
        least_steps=_of_draws(hyperbola, 0) if hyperbola else None,
        least_samples=_of_draws(hyperbola, 1) if hyperbola else None,
        worst_error=hyperbola.worst if hyperbola else None,
        points=[
            BatchPoint(run=str(one.path), batch=one.batch, seed=one.seed, steps=one.steps, samples=one.samples)
            for one in found
        ],
        noise=[
            NoisePoint(
                first=window.first,
                last=window.last,
                noise_scale=estimate(window.found.value, window.found.low, window.found.high),
                exhausts_data=window.found.exhausts_data,
            )
            for window in (steps.windows or noise_windows(base))
        ],
        table=rows,
        recommendation=recommend(allowed, steps, wish),
        branches=list(question.branches),
        warnings=_warnings(steps, found, question),
        evidence=Evidence(
            runs=[str(one.path) for one in found] or [str(base)],
            held_out=_held_out(found, hyperbola),
            confidence=CONFIDENCE,
            notes=_notes(steps, question),
        ),
    )


def _record(of: Interval | None) -> Estimate | None:
    return None if of is None else estimate(of.value, of.low, of.high)


def _of_draws(of: Hyperbola, column: int) -> Estimate:
    import numpy as np

    tail = (1 - of.confidence) / 2
    low, high = np.quantile(of.draws[:, column], [tail, 1 - tail])
    return estimate((of.least_steps, of.least_samples)[column], float(low), float(high))


def _held_out(found: Sequence[Reached], hyperbola: Hyperbola | None) -> list[HeldOut]:
    if hyperbola is None or hyperbola.held_out is None:
        return []
    steps: Mapping[int, list[float]] = {}
    for one in found:
        if one.steps is not None:
            steps.setdefault(one.batch, []).append(one.steps)  # type: ignore[attr-defined]
    largest = max(steps)
    measured = sum(steps[largest]) / len(steps[largest])
    what = f"steps at a batch of {largest:,}, from the smaller ones"
    return [HeldOut(what=what, measured=measured, predicted=measured * (1 + hyperbola.held_out))]


def _warnings(steps: Steps, found: Sequence[Reached], question: Question) -> list[str]:
    warnings = []
    missed = sorted({one.batch for one in found if one.steps is None})
    if missed:
        shown = ", ".join(f"{batch:,}" for batch in missed)
        warnings.append(f"runs at a batch of {shown} did not meet the target: these sizes are left out of the fit")
    if steps.source == "noise":
        warnings.append("steps are guessed from one run's noise; they lie between linear scaling and no gain at all")
    if question.speed is None:
        warnings.append("no times: make a paceline plan speed of short runs, and name its directory with --speed")
    if question.settled is not None and not question.settled.bounded:
        warnings.append(
            f"no branch lost anything up to a batch of {question.settled.largest:,}: the limit is beyond it"
        )
    return warnings


def _notes(steps: Steps, question: Question) -> list[str]:
    notes = ["steps between two evaluations are taken from a straight line"] if steps.source == "hyperbola" else []
    notes.append(
        "statistical: progress of a sample beside one at the smallest batch; system: throughput beside single workers"
    )
    if question.settled is not None:
        largest, limit = question.settled.largest, question.settled.limit
        notes.append(f"branches: up to a batch of {largest:,} the loss after the same samples is within {limit:.4g}")
    return notes
