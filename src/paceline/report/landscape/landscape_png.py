"""Pictures of a measurement for papers and slides."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.report.landscape.landscape_figures import LOG_FROM
from paceline.report.landscape.measurement import Landscape
from paceline.report.landscape.quantities import significant, weights
from paceline.report.landscape.surface import height, on_surface
from paceline.report.page.png_figures import canvas, flat_axes, write_png
from paceline.report.page.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_COLOURS = "cividis"  # even steps of lightness, in grey and with colour-blind eyes too


def write_pictures(loaded: Landscape, folder: Path) -> list[Path]:
    """Write a picture of each slice and of the density that there is.

    Args:
        loaded: the measurement.
        folder: surface.png, path.png, line.png, interpolation.png, density.png go there.

    Returns:
        What was written.

    Raises:
        PacelineError: a file cannot be written.
    """
    drawn = (
        ("surface", "surface_loss", _surface),
        ("path", "trajectory_xy", _path),
        ("line", "line_loss", _line),
        ("interpolation", "interpolation_loss", _interpolation),
        ("density", "density_value", _density),
    )
    there = [(name, draw) for name, array, draw in drawn if array in loaded.arrays]
    kept = [(name, draw) for name, draw in there if name != "path" or not on_surface(loaded)]
    return write_png([(f"{name}.png", functools.partial(draw, loaded)) for name, draw in kept], folder)


def _surface(run: Landscape) -> Figure:
    x, y, loss = run.arrays["surface_x"], run.arrays["surface_y"], run.arrays["surface_loss"]
    shown, ticks = _scale(loss)
    figure = _figure(run, 9.2, 4.4)
    solid: Any = figure.add_subplot(1, 2, 1, projection="3d")
    grid = np.meshgrid(x, y)
    solid.plot_surface(*grid, shown, cmap=_COLOURS, rcount=100, ccount=100, linewidth=0, antialiased=True)
    solid.set_box_aspect((1, 1, 0.7), zoom=0.88)
    solid.view_init(elev=32, azim=-52)
    solid.tick_params(labelsize=7, colors=LIGHT["soft"], pad=0)
    for axis in (solid.xaxis, solid.yaxis, solid.zaxis):
        axis.set_pane_color(LIGHT["paper"])
        axis._axinfo["grid"].update(color=LIGHT["grid"], linewidth=0.6)  # there is no public way
    solid.set_xlabel(_axis_names(run)[0], fontsize=7, color=LIGHT["soft"], labelpad=-4)
    solid.set_ylabel(_axis_names(run)[1], fontsize=7, color=LIGHT["soft"], labelpad=-4)
    if ticks:
        solid.set_zticks(list(ticks), list(ticks.values()))
    flat = flat_axes(figure, *_axis_names(run), (1, 2, 2))
    filled = flat.contourf(x, y, np.ma.masked_invalid(shown), levels=24, cmap=_COLOURS)
    thin: dict[str, Any] = {"colors": "white", "linewidths": 0.4, "alpha": 0.5, "linestyles": "solid"}
    flat.contour(x, y, np.ma.masked_invalid(shown), levels=24, **thin)
    bar = figure.colorbar(filled, ax=flat)
    bar.set_label("loss", fontsize=9, color=LIGHT["soft"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=LIGHT["soft"])
    if ticks:
        bar.set_ticks(list(ticks), labels=list(ticks.values()))
    if on_surface(run):
        xy = run.arrays["trajectory_xy"]
        flat.plot(xy[:, 0], xy[:, 1], "o-", color="white", markeredgecolor="black", markersize=4, linewidth=1.4)
        flat.plot(*xy[-1], "P", color="white", markeredgecolor="black", markersize=9)
        above = height(x, y, shown, xy)
        solid.plot(xy[:, 0], xy[:, 1], above, "o-", color=LIGHT["run-1"], markersize=2.5, linewidth=1.6, zorder=9)
    else:
        flat.plot(0, 0, "P", color="white", markeredgecolor="black", markersize=9)
    return figure


def _path(run: Landscape) -> Figure:
    xy, steps = run.arrays["trajectory_xy"], run.arrays["trajectory_step"]
    figure = _figure(run, 5, 4)
    axes = flat_axes(figure, "first main axis", "second main axis")
    axes.plot(xy[:, 0], xy[:, 1], "o-", color=LIGHT["run-0"], markersize=4)
    for index in (0, len(steps) - 1):
        axes.annotate(f"step {steps[index]:,.0f}", xy[index], textcoords="offset points", xytext=(6, 6), fontsize=8)
    return figure


def _line(run: Landscape) -> Figure:
    figure = _figure(run, 5.6, 3.6)
    axes = flat_axes(figure, "t, along the first direction", "loss")
    axes.plot(run.arrays["line_t"], run.arrays["line_loss"], "o-", color=LIGHT["run-0"], markersize=3)
    _upright(axes, run.arrays["line_loss"])
    return figure


def _interpolation(run: Landscape) -> Figure:
    t, loss = run.arrays["interpolation_t"], run.arrays["interpolation_loss"]
    figure = _figure(run, 5.6, 3.6)
    axes = flat_axes(figure, "t, from one run to the other", "loss")
    axes.plot(t, loss, "o-", color=LIGHT["run-0"], markersize=3)
    inside = t[(t >= 0) & (t <= 1)]
    if (t == 0).any() and (t == 1).any():
        ends = (1 - inside) * loss[t == 0][0] + inside * loss[t == 1][0]
        axes.plot(inside, ends, "--", color=LIGHT["soft"], linewidth=1.2)
    _upright(axes, loss)
    part = run.result.interpolation
    if part is not None and part.barrier is not None:
        axes.set_title(f"barrier {significant(part.barrier)}", fontsize=9, color=LIGHT["ink"])
    return figure


def _density(run: Landscape) -> Figure:
    grid, value = run.arrays["density_grid"], run.arrays["density_value"]
    error = run.arrays.get("density_error", np.zeros_like(value))
    floor = float(np.nanmax(value)) * 1e-7
    figure = _figure(run, 5.6, 3.6)
    axes = flat_axes(figure, "eigenvalue", "density")
    low, high = np.maximum(value - error, floor), np.maximum(value + error, floor)
    axes.fill_between(grid, low, high, color=LIGHT["run-0"], alpha=0.25, linewidth=0)
    axes.plot(grid, np.maximum(value, floor), color=LIGHT["run-0"])
    axes.set_yscale("log")
    axes.set_ylim(floor, float(np.nanmax(value)) * 3)
    return figure


def _figure(run: Landscape, wide: float, high: float) -> Figure:
    return canvas(f"{run.result.task}: {weights(run.result)}", wide, high)


def _axis_names(run: Landscape) -> tuple[str, str]:
    pca = run.result.surface is not None and run.result.surface.plane == "pca"
    return ("first main axis", "second main axis") if pca else ("first direction", "second direction")


def _scale(loss: Floats) -> tuple[Floats, dict[float, str]]:
    """Heights as drawn, and labels of some heights; logarithms where losses differ much, else no labels of its own."""
    if not _wide(loss):
        return loss, {}
    kept = loss[np.isfinite(loss)]
    low, high = float(np.log10(kept.min())), float(np.log10(kept.max()))
    steps = (1,) if high - low > 3 else (1, 2, 5)
    marks = [step * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for step in steps]
    within = [mark for mark in marks if low <= math.log10(mark) <= high]
    every = max(1, math.ceil(len(within) / 8))
    return np.log10(loss), {math.log10(mark): significant(mark, 2) for mark in within[::every]}


def _upright(axes: Axes, loss: Floats) -> None:
    if _wide(loss):
        axes.set_yscale("log")


def _wide(loss: Floats) -> bool:
    kept = loss[np.isfinite(loss)]
    return bool(len(kept) and kept.min() > 0 and kept.max() / kept.min() > LOG_FROM)
