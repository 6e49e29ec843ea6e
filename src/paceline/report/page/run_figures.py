"""The figures of the run page, from columns of any length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.report import words
from paceline.report.page import run_tables
from paceline.report.page.figures import DOTTED, Axis, Choice, Figure, Mark, Series, evenly, label, values
from paceline.report.page.theme import look
from paceline.report.run_record import Run
from paceline.report.summary import Summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

SMOOTH = 120
"""Points of a drawn mean; what is finer than that is noise at the width of a page."""
_ACROSS = {"samples": ("samples", "~s"), "step": ("steps", ","), "elapsed_s": ("training time, {}", "~g")}
"""What a switch puts along the horizontal axis: title and format."""


def run_figures(runs: Mapping[str, Run], summaries: Sequence[Summary]) -> list[Figure]:
    """In the order of reading; each only where there is something to draw.

    Args:
        runs: at least one, by name.
        summaries: of the same runs, in the same order.
    """
    draw = _Drawing(runs)
    metrics = metrics_of(summaries)
    found = [_metric(draw, f"plot-metric-{index}", name, summaries) for index, name in enumerate(metrics)]
    found += [*_sharpness(draw), *_noise(draw)]
    if any(run.totals.steps for run in runs.values()):
        found += [_loss(draw, "loss" in metrics), _speed(draw), _learning_rate(draw)]
    return found


def metrics_of(summaries: Sequence[Summary]) -> list[str]:
    """Every metric that any of the runs has and that gets a figure, headlines first."""
    headlines = [summary.headline for summary in summaries if summary.headline]
    return list(dict.fromkeys([*headlines, *(metric.name for summary in summaries for metric in summary.further)]))


class _Drawing:
    """Runs with what all of their figures share: looks, the thinned series, and the horizontal axis."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self.runs = runs
        self.several = len(runs) > 1
        self.looks = {name: look(index) for index, name in enumerate(runs)}
        self.means = {name: run.windows.merged(SMOOTH) for name, run in runs.items()}
        self.evaluations = {
            name: run.evaluations.at(evenly(len(run.evaluations.step), run_tables.EVALUATIONS))
            for name, run in runs.items()
        }
        longest = max(_last(mean.elapsed_s) for mean in self.means.values())
        self.unit, self.unit_s = ("s", 1) if longest < 180 else ("min", 60) if longest < 10_800 else ("h", 3600)
        self.across = Choice("axis", {name: self._axis(name) for name in _ACROSS})

    def _axis(self, name: str) -> Axis:
        """With the same end for every figure, so that one can be read below the other."""
        title, form = _ACROSS[name]
        drawn = [*self.means.values(), *self.evaluations.values()]
        end = 1.02 * max(_last(getattr(one, name)) for one in drawn) / (self.unit_s if name == "elapsed_s" else 1)
        return Axis(title.format(self.unit), tickformat=form, range=(0.0, end or 1.0))

    def series(self, name: str, along: Any, y: Column, called: str, **style: Any) -> Series:
        """A column of a run.

        Args:
            name: of the run.
            along: has the columns step, samples and elapsed_s.
            y: the column.
            called: what it is, under the pointer; empty for nothing there.
            style: as in `Series`.
        """
        x = {"samples": along.samples, "step": along.step, "elapsed_s": along.elapsed_s / self.unit_s}
        head = f"<b>{label(name)}</b><br>" if self.several else ""
        said = f"{head}{called} %{{y:.4~g}}<br>step %{{customdata:,}}<br>%{{x:.5~s}} "
        hover = Choice("axis", {"samples": f"{said}samples", "step": f"{said}steps", "elapsed_s": f"{said}{self.unit}"})
        own: dict[str, Any] = {
            "paint": f"run-{self.looks[name].colour}",
            "dash": self.looks[name].dash if self.several else "",
        }
        own |= {"hover": hover, "said": values(along.step)} if called else {"hover": None}
        return Series(name, Choice("axis", x), values(y), **(own | style))

    def marked(self, name: str, size: int) -> dict[str, Any]:
        """The style of a line with a marker at each point."""
        return {"marker": self.looks[name].marker, "size": size}

    def mean_series(self, column: str, called: str) -> list[Series]:
        """A column of the means of every run."""
        found = []
        for name, mean in self.means.items():
            # Several dense lines get a few marks each, so that shape tells them apart where colour cannot.
            few = self.marked(name, 7) | {"sparse": 7} if self.several or len(mean.step) == 1 else {}
            found.append(self.series(name, mean, getattr(mean, column), called, **few))
        return found

    def in_words(self) -> str:
        """What means are over."""
        sizes = sorted({self.means[name].stride for name, run in self.runs.items() if run.totals.steps})
        if not sizes or sizes == [1]:
            return "single steps"
        return "means over " + " or ".join(words.plural(size, "step") for size in sizes)


def _last(column: Column) -> float:
    return float(np.nan_to_num(column[-1])) if len(column) else 0.0


def _metric(draw: _Drawing, place: str, metric: str, summaries: Sequence[Summary]) -> Figure:
    series = [
        draw.series(name, found, found.value[metric], label(metric), **draw.marked(name, 8))
        for name, found in draw.evaluations.items()
        if metric in found.value
    ]
    # The target that all runs have.
    targets = {s.target.value for s in summaries if s.target is not None and s.target.metric == metric}
    marks = [Mark("y", one, f"target {one:.15g}", stretches=False) for one in targets] if len(targets) == 1 else []
    heading = f"{metric.capitalize()} of the evaluation set"
    note = "Each point is one pass over the whole evaluation set, each sample once."
    axis, table = Axis("", tickformat=".4~g"), run_tables.metric_table(metric, draw.runs)
    return Figure(place, heading, note, draw.across, axis, series, table, marks=marks)


def _sharpness(draw: _Drawing) -> list[Figure]:
    table = run_tables.sharpness_table(draw.runs)
    if table is None:
        return []
    series = []
    for name, found in draw.evaluations.items():
        if {"sharpness", "stability_limit"} <= found.value.keys():
            limit, sharpness = found.value["stability_limit"], found.value["sharpness"]
            series.append(draw.series(name, found, limit, "limit of stability", width=1, dash=DOTTED))
            series.append(draw.series(name, found, sharpness, "sharpness", **draw.marked(name, 8)))
    note = "Line: the largest eigenvalue of the Hessian. Dotted: the largest that the step size bears."
    axis = Axis("", tickformat=".3~g", zero=True)
    return [Figure("plot-sharpness", "Sharpness", note, draw.across, axis, series, table)]


def _noise(draw: _Drawing) -> list[Figure]:
    table = run_tables.noise_table(draw.runs)
    if table is None:
        return []
    series = []
    for name, run in draw.runs.items():
        if (noise := run.noise) is not None:
            # What has no upper end is drawn up to the data set, beyond which nothing is measured.
            finite = noise.value[np.isfinite(noise.value)]
            top = float(noise.data) if noise.data else float(np.max(finite, initial=1.0))
            value, low, high = (np.minimum(column, top) for column in (noise.value, noise.low, noise.high))
            style = {"low": values(low), "high": values(high), "whiskers": True} | draw.marked(name, 8)
            series.append(draw.series(name, noise, noise.batch, "batch", width=1, dash=DOTTED))
            series.append(draw.series(name, noise, value, "noise scale", **style))
    note = (
        "Line: the batch at which gradient and noise are equally long, in samples, with 90 % intervals. Dotted: the "
        "batch. Up to about the noise scale a larger batch saves steps almost in proportion."
    )
    axis = Axis("", tickformat=".3~s", log=True)
    return [Figure("plot-noise", "Gradient noise scale", note, draw.across, axis, series, table)]


def _loss(draw: _Drawing, as_metric: bool) -> Figure:
    """Losses of single steps, their means, and those of evaluations."""
    faint = {"alpha": 0.16 if draw.several else 0.26, "width": 1, "dash": ""}
    series = [draw.series(name, run.steps, run.steps.loss, "", **faint) for name, run in draw.runs.items()]
    for name, mean in draw.means.items():
        series.append(draw.series(name, mean, mean.loss, "training loss"))
        found = draw.evaluations[name]
        if "loss" in found.value:
            style = {"kind": "points", "hollow": True} | draw.marked(name, 9)
            series.append(draw.series(name, found, found.value["loss"], "evaluation loss", **style))
    sizes = draw.in_words()
    single = "" if sizes == "single steps" else "Faint: single steps, extremes kept. "
    note = f"Line: training, {sizes}. {single}Open points: evaluation."
    positive = any((mean.loss > 0).any() for mean in draw.means.values())
    axis = Axis("", tickformat=".3~g", log=Choice("loss-scale", {"log": positive, "linear": False}), zero=True)
    table = run_tables.series_table("Training loss", "loss", words.decimal, draw.runs)
    evaluated = any("loss" in found.value for found in draw.evaluations.values())
    more = run_tables.metric_table("loss", draw.runs) if evaluated and not as_metric else None
    return Figure("plot-loss", "Loss", note, draw.across, axis, series, table, more)


def _speed(draw: _Drawing) -> Figure:
    note = f"Samples over the time of their steps, {draw.in_words()}; evaluation and checkpoints left out."
    table = run_tables.series_table("Samples/s", "samples_per_s", words.rate, draw.runs)
    axis, series = Axis("", tickformat=",.4~r", zero=True), draw.mean_series("samples_per_s", "samples/s")
    return Figure("plot-speed", "Samples per second", note, draw.across, axis, series, table)


def _learning_rate(draw: _Drawing) -> Figure:
    table = run_tables.series_table("Learning rate", "lr", lambda value: f"{value:.4g}", draw.runs)
    axis, series = Axis("", tickformat=".3~g", zero=True), draw.mean_series("lr", "learning rate")
    return Figure("plot-lr", "Learning rate", "As used by each step.", draw.across, axis, series, table)
