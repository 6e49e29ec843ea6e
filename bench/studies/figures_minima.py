"""The pictures of docs/studies/minima.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.studies.cell import final
from bench.studies.contrasts import Records, of_setting
from bench.studies.minima import PAIRS, TITLES, TRAINED
from bench.studies.pages import COLOURS, figure
from bench.studies.readings import EIGENVALUE, WEIGHTED_EIGENVALUE, curve, density

SETTING_COLOURS = dict(zip(TRAINED, (COLOURS["first"], COLOURS["second"], COLOURS["third"]), strict=True))
Curve = Callable[[Mapping[str, Any]], tuple[list[float], list[float]] | None]


def sharpness_figure(records: Records) -> Figure:
    """A dot a run: the largest eigenvalue, plain and weighted, against test accuracy."""
    made, axes = figure(width=9.6, columns=2)
    for one, reading in zip(axes, (EIGENVALUE, WEIGHTED_EIGENVALUE), strict=True):
        for setting, title in TITLES.items():
            accuracy = {run["seed"]: final(run) for run in of_setting(records, setting)}
            pairs = [
                (reading.value(run), accuracy.get(run["seed"])) for run in of_setting(records, f"{setting}-sharpness")
            ]
            known = [(x, 100 * y) for x, y in pairs if x is not None and y is not None and x > 0]
            label = f"{title} (n = {len(known)})"
            one.plot([x for x, _ in known], [y for _, y in known], "o", color=SETTING_COLOURS[setting], label=label)
        one.set_xscale("log")
        one.set_xlabel(reading.title)
        one.legend()
    axes[0].set_ylabel("test accuracy, %")
    axes[0].set_title("Plain")
    axes[1].set_title("Reparametrisation-aware")
    return made


def density_figure(records: Records) -> Figure | None:
    """One curve a run, None where no density was measured."""
    return _curves(records, density, "eigenvalue", "density", log=True)


def slices_figure(records: Records) -> Figure | None:
    """Loss along a filter-normalised direction; None where no line was measured."""
    return _curves(records, curve, "distance along a filter-normalised direction", "training loss", log=False)


def _curves(records: Records, read: Curve, across: str, up: str, *, log: bool) -> Figure | None:
    made, (axes,) = figure()
    drawn = [
        _draw(axes, of_setting(records, f"{setting}-sharpness"), read, SETTING_COLOURS[setting], title)
        for setting, title in TITLES.items()
    ]
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=1e-6)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend()
    return made if any(drawn) else None


def _draw(axes: Axes, runs: Records, read: Curve, colour: str, title: str) -> int:
    """A curve a run that has one; how many there are stands in the legend, and is returned."""
    found = [points for run in runs if (points := read(run)) is not None]
    for points in found:
        axes.plot(*points, color=colour, alpha=0.7, linewidth=1)
    axes.plot([], [], color=colour, label=f"{title} (n = {len(found)})")
    return len(found)


def interpolation_figure(records: Records) -> Figure | None:
    """Loss on the straight lines between minima, a curve a seed; None where none was measured."""
    made, (axes,) = figure()
    drawn = [
        _draw(axes, of_setting(records, f"{first}-to-{second}"), curve, colour, f"{TITLES[first]} to {TITLES[second]}")
        for (first, second), colour in zip(PAIRS, (COLOURS["second"], COLOURS["third"]), strict=True)
    ]
    axes.set_xlabel("part of the way")
    axes.set_ylabel("training loss")
    axes.legend()
    return made if any(drawn) else None
