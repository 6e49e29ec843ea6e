"""The figures of the run page, from columns of any length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.report import words
from paceline.report.noise import Noise
from paceline.report.page import run_tables
from paceline.report.page.figures import DOTTED, Axis, Choice, Figure, Mark, Series, evenly, label, values
from paceline.report.page.run_tables import EVALUATIONS
from paceline.report.page.theme import look
from paceline.report.run_record import Evaluations, Run
from paceline.report.summary import Summary
from paceline.report.thin import Windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

SMOOTH = 120
"""Points of a drawn mean; what is finer than that is noise at the width of a page."""


@dataclass(frozen=True)
class _Across:
    """The horizontal axis, which a switch of the page chooses.

    Attributes:
        reach: its end by what is along it; the same for every figure, so that one can be read below the other.
        unit: of time, with its seconds.
        several: whether runs are told apart.
    """

    reach: dict[str, float]
    unit: tuple[str, int]
    several: bool

    def axis(self) -> Choice:
        """Samples, steps or time."""
        titles = {"samples": "samples", "step": "steps", "elapsed_s": f"training time, {self.unit[0]}"}
        formats = {"samples": "~s", "step": ",", "elapsed_s": "~g"}
        axes = {k: Axis(titles[k], tickformat=formats[k], range=(0.0, self.reach[k])) for k in titles}
        return Choice("axis", axes)

    def series(self, run: _Drawn, along: Any, y: Column, called: str | None, **style: Any) -> Series:
        """A column of a run.

        Args:
            run: whose.
            along: has the columns step, samples and elapsed_s.
            y: the column.
            called: what it is, under the pointer; None for nothing there.
            style: as in `Series`.
        """
        x = {"samples": along.samples, "step": along.step, "elapsed_s": np.asarray(along.elapsed_s) / self.unit[1]}
        head = f"<b>{label(run.name)}</b><br>" if self.several else ""
        units = {"samples": "samples", "step": "steps", "elapsed_s": self.unit[0]}
        said = f"{head}{called} %{{y:.4~g}}<br>step %{{customdata:,}}<br>%{{x:.5~s}} "
        hover = None if called is None else Choice("axis", {name: said + unit for name, unit in units.items()})
        own = {"paint": f"run-{run.look.colour}", "dash": run.look.dash if self.several else ""}
        said_of = [] if called is None else values(along.step)
        return Series(run.name, Choice("axis", x), values(y), said=said_of, hover=hover, **(own | style))


class _Drawn:
    """A run as it is drawn."""

    def __init__(self, name: str, run: Run, index: int) -> None:
        self.name, self.run, self.look = name, run, look(index)
        self.mean: Windows = run.windows.merged(SMOOTH)
        kept = evenly(len(run.evaluations.step), EVALUATIONS)
        self.evaluations: Evaluations = run.evaluations.at(kept)


def run_figures(runs: Mapping[str, Run], summaries: Sequence[Summary]) -> list[Figure]:
    """In the order of reading; each only where there is something to draw.

    Args:
        runs: at least one, by name.
        summaries: of the same runs, in the same order.
    """
    drawn = [_Drawn(name, run, index) for index, (name, run) in enumerate(runs.items())]
    across = _across(drawn)
    metrics = metrics_of(summaries)
    found = [_metric(f"plot-metric-{index}", name, summaries, drawn, across) for index, name in enumerate(metrics)]
    found += [*_sharpness(drawn, across), *_noise(drawn, across)]
    if any(run.totals.steps for run in runs.values()):
        found += [_loss(drawn, across, "loss" in metrics), *_means(drawn, across)]
    return found


def metrics_of(summaries: Sequence[Summary]) -> list[str]:
    """Every metric that any of the runs has and that gets a figure, headlines first."""
    headlines = [summary.headline for summary in summaries if summary.headline]
    return list(dict.fromkeys([*headlines, *(metric.name for summary in summaries for metric in summary.further)]))


def _across(drawn: Sequence[_Drawn]) -> _Across:
    longest = max(_last(one.mean.elapsed_s) for one in drawn)
    unit = ("s", 1) if longest < 180 else ("min", 60) if longest < 10_800 else ("h", 3600)
    reach = {}
    for name in ("samples", "step", "elapsed_s"):
        ends = [_last(getattr(series, name)) for one in drawn for series in (one.mean, one.evaluations)]
        reach[name] = 1.02 * max(ends) / (unit[1] if name == "elapsed_s" else 1) or 1.0
    return _Across(reach, unit, len(drawn) > 1)


def _last(column: Column) -> float:
    return float(np.nan_to_num(column[-1])) if len(column) else 0.0


def _table_runs(drawn: Sequence[_Drawn]) -> dict[str, Run]:
    return {one.name: one.run for one in drawn}


def _metric(place: str, metric: str, summaries: Sequence[Summary], drawn: Sequence[_Drawn], across: _Across) -> Figure:
    # The target that all runs have.
    targets = {s.target.value for s in summaries if s.target is not None and s.target.metric == metric}
    marks = [Mark("y", one, f"target {one:.15g}", stretches=False) for one in targets] if len(targets) == 1 else []
    return Figure(
        place,
        f"{metric.capitalize()} of the evaluation set",
        "Each point is one pass over the whole evaluation set, each sample once.",
        across.axis(),
        Axis("", tickformat=".4~g"),
        [
            across.series(one, one.evaluations, one.evaluations.value[metric], label(metric), **_marked(one, 8))
            for one in drawn
            if metric in one.evaluations.value
        ],
        run_tables.metric_table(metric, _table_runs(drawn)),
        marks=marks,
    )


def _marked(one: _Drawn, size: int) -> dict[str, Any]:
    return {"marker": one.look.marker, "size": size}


def _sharpness(drawn: Sequence[_Drawn], across: _Across) -> list[Figure]:
    table = run_tables.sharpness_table(_table_runs(drawn))
    if table is None:
        return []
    series = []
    for one in drawn:
        found = one.evaluations.value
        if {"sharpness", "stability_limit"} <= found.keys():
            limit = found["stability_limit"]
            series.append(across.series(one, one.evaluations, limit, "limit of stability", width=1, dash=DOTTED))
            series.append(across.series(one, one.evaluations, found["sharpness"], "sharpness", **_marked(one, 8)))
    note = "Line: the largest eigenvalue of the Hessian. Dotted: the largest that the step size bears."
    axis = Axis("", tickformat=".3~g", zero=True)
    return [Figure("plot-sharpness", "Sharpness", note, across.axis(), axis, series, table)]


def _noise(drawn: Sequence[_Drawn], across: _Across) -> list[Figure]:
    table = run_tables.noise_table(_table_runs(drawn))
    if table is None:
        return []
    series = []
    for one in drawn:
        if (noise := one.run.noise) is not None:
            value, low, high = (np.minimum(column, _top(noise)) for column in (noise.value, noise.low, noise.high))
            style = {"low": values(low), "high": values(high), "whiskers": True} | _marked(one, 8)
            series.append(across.series(one, noise, noise.batch, "batch", width=1, dash=DOTTED))
            series.append(across.series(one, noise, value, "noise scale", **style))
    note = (
        "Line: the batch at which gradient and noise are equally long, in samples, with 90 % intervals. Dotted: the "
        "batch. Up to about the noise scale a larger batch saves steps almost in proportion."
    )
    axis = Axis("", tickformat=".3~s", log=True)
    return [Figure("plot-noise", "Gradient noise scale", note, across.axis(), axis, series, table)]


def _top(noise: Noise) -> float:
    """What has no upper end is drawn up to the data set, beyond which nothing is measured."""
    return float(noise.data) if noise.data else float(np.max(noise.value[np.isfinite(noise.value)], initial=1.0))


def _loss(drawn: Sequence[_Drawn], across: _Across, as_metric: bool) -> Figure:
    """Losses of single steps, their means, and those of evaluations."""
    alpha = 0.16 if across.several else 0.26
    series = [
        across.series(one, one.run.steps, one.run.steps.loss, None, alpha=alpha, width=1, dash="") for one in drawn
    ]
    evaluated = False
    for one in drawn:
        series.append(across.series(one, one.mean, one.mean.loss, "training loss"))
        if (losses := one.evaluations.value.get("loss")) is not None:
            evaluated = True
            style = {"kind": "points", "hollow": True} | _marked(one, 9)
            series.append(across.series(one, one.evaluations, losses, "evaluation loss", **style))
    sizes = windows_in_words([one.run for one in drawn])
    faint = "" if sizes == "single steps" else "Faint: single steps, extremes kept. "
    positive = any((one.mean.loss > 0).any() for one in drawn)
    log = Choice("loss-scale", {"log": positive, "linear": False})
    table_runs = _table_runs(drawn)
    return Figure(
        "plot-loss",
        "Loss",
        f"Line: training, {sizes}. {faint}Open points: evaluation.",
        across.axis(),
        Axis("", tickformat=".3~g", log=log, zero=True),
        series,
        run_tables.series_table("Training loss", "loss", words.decimal, table_runs),
        run_tables.metric_table("loss", table_runs) if evaluated and not as_metric else None,
    )


def _means(drawn: Sequence[_Drawn], across: _Across) -> list[Figure]:
    """Speed and learning rate, each along the whole run."""
    sizes = windows_in_words([one.run for one in drawn])
    speed = f"Samples over the time of their steps, {sizes}; evaluation and checkpoints left out."
    found = []
    for place, heading, note, column, called, form in (
        ("plot-speed", "Samples per second", speed, "samples_per_s", "samples/s", ",.4~r"),
        ("plot-lr", "Learning rate", "As used by each step.", "lr", "learning rate", ".3~g"),
    ):
        series = []
        for one in drawn:
            # Several dense lines get a few marks each, so that shape tells them apart where colour cannot.
            few = _marked(one, 7) | {"sparse": 7} if across.several or len(one.mean.step) == 1 else {}
            series.append(across.series(one, one.mean, getattr(one.mean, column), called, **few))
        show = words.rate if column == "samples_per_s" else _significant
        table = run_tables.series_table(called[0].upper() + called[1:], column, show, _table_runs(drawn))
        axis = Axis("", tickformat=form, zero=True)
        found.append(Figure(place, heading, note, across.axis(), axis, series, table))
    return found


def _significant(value: float) -> str:
    return f"{value:.4g}"


def windows_in_words(runs: Sequence[Run]) -> str:
    """What drawn means are over."""
    sizes = sorted({run.windows.merged(SMOOTH).stride for run in runs if run.totals.steps})
    if not sizes or sizes == [1]:
        return "single steps"
    return "means over " + " or ".join(words.plural(size, "step") for size in sizes)
