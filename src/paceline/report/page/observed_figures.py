"""Figures of an observed run of `paceline run`: speed, loss, learning rate, and maps of the samples that ranks read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.rundir import RunDir
from paceline.report import words
from paceline.report.ledger_map import PassMap, ledger_maps
from paceline.report.observed_ranks import ObservedRank, mean_rates
from paceline.report.page.figures import Axis, Choice, Figure, Series, Table, evenly, tabulate, values
from paceline.report.page.theme import COLOURS, look
from paceline.report.run_record import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

_AXIS = "observed-axis"
_POINTS = 400
_ROWS = 40


def observed_figures(run: Run, name: str) -> list[Figure]:
    """Speed, loss and learning rate over steps or time; each only where there is something to draw.

    Args:
        run: of `paceline run`.
        name: that ids of the figures begin with.
    """
    ranks = list(run.job.ranks.values())
    first = run.job.ranks.get(0)
    found = [_loss(ranks, run.job.recorded, name)]
    if first is not None:
        found += [_speed(first, name), _learning_rate(first, name)]
    return [figure for figure in found if figure is not None]


def ledger_figures(run: Run, name: str, world: int | None) -> list[Figure]:
    """A map for each pass that is shown.

    Args:
        run: of `paceline run`.
        name: that ids of the figures begin with.
        world: ranks of the job; None where that is not known.
    """
    maps = ledger_maps(RunDir(run.path), run.job, world)
    return [_map(each, f"{name}-ledger-{each.loader}-{each.number}") for each in maps]


def _across(steps: Sequence[float], elapsed_s: Sequence[float], end: float) -> tuple[Choice, Choice]:
    """The horizontal axis, and the columns along it."""
    unit, unit_s = ("s", 1) if end < 180 else ("min", 60) if end < 10_800 else ("h", 3600)
    axis = Choice(
        _AXIS,
        {
            "step": Axis("optimizer steps", tickformat=","),
            "elapsed_s": Axis(f"time since the first step, {unit}", tickformat="~g"),
        },
    )
    return axis, Choice(_AXIS, {"step": values(steps), "elapsed_s": values([each / unit_s for each in elapsed_s])})


def _speed(rank: ObservedRank, name: str) -> Figure | None:
    step, at, rate = mean_rates(rank)
    if not len(step):
        return None
    axis, along = _across(step.tolist(), at.tolist(), rank.elapsed_s[-1])
    hover = "%{y:.4~r} steps/s<br>up to step %{customdata:,}"
    style = {"marker": "circle", "size": 6} if len(step) == 1 else {}
    series = Series("steps/s", along, values(rate), said=values(step), hover=hover, **style)  # type: ignore[arg-type]
    shown = evenly(len(step), _ROWS)
    rows = [[words.integer(step[i]), words.duration(at[i]), words.rate(rate[i])] for i in shown]
    table = Table("Steps a second of rank 0", ["Up to step", "Time", "Steps/s"], rows)
    note = "Rank 0, between recorded steps; evaluation, checkpoints and other pauses included."
    return Figure(
        f"{name}-speed", "Steps per second", note, axis, Axis("", tickformat=",.4~r", zero=True), [series], table
    )


def _loss(ranks: Sequence[ObservedRank], recorded: int, name: str) -> Figure | None:
    """Of the first optimizer of each rank."""
    shown = [ranks[index] for index in evenly(len(ranks), COLOURS)]
    series, rows, positive = [], [], True
    end = max((rank.elapsed_s[-1] for rank in shown if rank.elapsed_s), default=0.0)
    axis = None
    for index, rank in enumerate(shown):
        trace = next(iter(rank.optimizers.values()), None)
        if trace is None or not np.isfinite(trace.loss).any():
            continue
        kept = [i for i, loss in enumerate(trace.loss) if np.isfinite(loss)]
        kept = [kept[i] for i in evenly(len(kept), _POINTS)]
        steps, losses = [trace.step[i] for i in kept], [trace.loss[i] for i in kept]
        axis, along = _across(steps, rank.elapsed_at(steps).tolist(), end)
        hover = f"rank {rank.rank}: %{{y:.4~g}}<br>step %{{customdata:,}}"
        seen = look(index)
        mark = {"marker": seen.marker, "size": 5, "sparse": 12} if len(shown) > 1 else {}
        series.append(
            Series(
                f"rank {rank.rank}",
                along,
                values(losses),
                paint=f"run-{seen.colour}",
                dash=seen.dash,
                width=1.5,
                said=values(steps),
                hover=hover,
                **mark,  # type: ignore[arg-type]
            )
        )
        positive = positive and min(losses) > 0
        few = evenly(len(steps), _ROWS)
        rows += [[f"rank {rank.rank}", words.integer(steps[i]), words.decimal(losses[i])] for i in few]
    if axis is None:
        return None
    some = f" {len(shown)} of {recorded} ranks." if recorded > len(shown) else ""
    note = (
        "The value on which each rank called backward(): the loss of one batch, not a mean over ranks. A GradScaler's "
        f"factor is divided out.{some}"
    )
    table = Table("Loss on which backward was called", ["Rank", "Step", "Loss"], rows, heads=2)
    return Figure(f"{name}-loss", "Loss", note, axis, Axis("", tickformat=".3~g", log=positive), series, table)


def _learning_rate(rank: ObservedRank, name: str) -> Figure | None:
    series, rows = [], []
    axis = None
    end = rank.elapsed_s[-1] if rank.elapsed_s else 0.0
    for index, (number, trace) in enumerate(list(rank.optimizers.items())[:COLOURS]):
        kept = [i for i in evenly(len(trace.step), _POINTS) if np.isfinite(trace.lr[i])]
        if not kept:
            continue
        steps, rates = [trace.step[i] for i in kept], [trace.lr[i] for i in kept]
        axis, along = _across(steps, rank.elapsed_at(steps).tolist(), end)
        called = f"optimizer {number}"
        hover = f"{called}: %{{y:.4~g}}<br>step %{{customdata:,}}"
        paint, dash = f"run-{look(index).colour}", look(index).dash
        series.append(Series(called, along, values(rates), paint=paint, dash=dash, said=values(steps), hover=hover))
        few = evenly(len(steps), _ROWS)
        rows += [[called, words.integer(steps[i]), f"{rates[i]:.4g}"] for i in few]
    if axis is None:
        return None
    table = Table("Learning rate of rank 0", ["Optimizer", "Step", "Learning rate"], rows, heads=2)
    note = "Rank 0, as each recorded step used it: the first parameter group of each optimizer."
    return Figure(f"{name}-lr", "Learning rate", note, axis, Axis("", tickformat=".3~g", zero=True), series, table)


def _map(one: PassMap, place: str) -> Figure:
    rows = [("all", one.mean), *((str(each.rank), each.mean) for each in one.ranks)]
    rows.reverse()  # the first row stands at the top
    series = Series(
        "reads",
        values(one.centers),
        [name for name, _ in rows],
        kind="map",
        z=[values(mean) for _, mean in rows],
        hover="rank %{y}, samples about %{x:,.0f}: read %{z:.3~g} times each",
    )
    table = tabulate(
        "Samples that each rank read",
        one.ranks,
        {
            "Rank": lambda each: str(each.rank),
            "Reads": lambda each: words.integer(each.samples),
            "Distinct": lambda each: words.integer(each.distinct),
            "Smallest index": lambda each: words.integer(each.first),
            "Greatest index": lambda each: words.integer(each.last),
        },
    )
    return Figure(
        id=place,
        heading=f"Loader {one.loader}, pass {one.number}" + (f": {one.data}" if one.data else ""),
        note=_caption(one),
        x=Axis("sample index", "count"),
        y=Axis("rank", "name"),
        series=[series],
        table=table,
        low=len(rows) <= 6,
    )


def _caption(one: PassMap) -> str:
    counts = [f"{words.integer(one.once)} samples were read once", f"{words.integer(one.more)} more than once"]
    counts += [f"{words.integer(one.never)} never"] if one.never is not None else []
    parts = [f"{', '.join(counts)}, by {words.plural(one.counted, 'rank')} together."]
    if one.never is None:
        parts.append("The data set's size is not known.")
    if one.subset is not None:
        parts.append(f"The loader reads a Subset of {one.subset:,} of these {one.samples:,} samples.")
    if one.left_early:
        parts.append(f"{_ranks(one.left_early)} left the pass early, or its end was not recorded.")
    if one.absent:
        parts.append(f"{_ranks(one.absent)} recorded no indices.")
    if one.width > 1:
        parts.append(f"A column is {one.width:,} indices.")
    if len(one.ranks) < one.counted:
        parts.append(f"{len(one.ranks)} of {one.counted} ranks are drawn, all are counted.")
    return " ".join(parts)


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:6])) + (f" and {len(ranks) - 6} more" if len(ranks) > 6 else "")
    return f"Rank {shown}" if len(ranks) == 1 else f"Ranks {shown}"
