"""Figures for papers and slides: PNG, light ground, 200 dots an inch; made without a display."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.records.rundir import write_atomic
from paceline.report.page.figures import Axis, Figure, payload
from paceline.report.page.theme import LIGHT

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

DOTS_PER_INCH = 200
_SHORT = 500.0
"""An axis that spans less than this factor has ticks between its powers of ten."""
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "x": "X", "": ""}


def write_png(figures: Iterable[tuple[str, Callable[[], matplotlib.figure.Figure]]], folder: Path) -> list[Path]:
    """Write pictures.

    Args:
        figures: file name of each, and what draws it.
        folder: where they go.

    Returns:
        What was written.

    Raises:
        PacelineError: a file cannot be written.
    """
    written = []
    for name, drawn in figures:
        buffer = io.BytesIO()
        drawn().savefig(buffer, format="png", dpi=DOTS_PER_INCH)
        write_atomic(folder / name, buffer.getvalue())
        written.append(folder / name)
    return written


def canvas(title: str, wide: float, high: float) -> matplotlib.figure.Figure:
    """An empty figure of that many inches."""
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(wide, high), layout="constrained", facecolor="white")
    # A name may hold `$`, which matplotlib would read as mathematics.
    figure.suptitle(title, fontsize=9, color=LIGHT["ink"], parse_math=False)
    return figure


def flat_axes(figure: matplotlib.figure.Figure, x: str, y: str, place: tuple[int, int, int] = (1, 1, 1)) -> Axes:
    """Axes with these titles, in a place of the figure."""
    axes = figure.add_subplot(*place)
    axes.set_xlabel(x, fontsize=9, color=LIGHT["soft"])
    axes.set_ylabel(y, fontsize=9, color=LIGHT["soft"])
    axes.tick_params(labelsize=8, colors=LIGHT["soft"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LIGHT["line"])
    return axes


def draw(figure: Figure, title: str) -> matplotlib.figure.Figure:
    """One figure of a page.

    Args:
        figure: what is drawn.
        title: of the page.
    """
    assert isinstance(figure.x, Axis)  # paper has no switches
    data = payload(figure)
    drawn = canvas(f"{title}: {figure.heading.lower()}", 6.4, 4.2)
    axes = flat_axes(drawn, figure.x.title, figure.y.title)
    _frame(axes, data)
    for one in data["series"]:
        _series(axes, one)
    for mark in data["marks"]:
        _mark(axes, mark)
    _settle(axes, data)
    labels = list(axes.get_legend_handles_labels()[1])
    if labels:
        shown: Any = axes.legend(fontsize=7, edgecolor="white", labelcolor=LIGHT["soft"], handlelength=3.2)
        for text in shown.get_texts():
            text.set_parse_math(False)
    return drawn


def _frame(axes: Axes, data: dict[str, Any]) -> None:
    """Scales and ticks."""
    from matplotlib.ticker import NullLocator

    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        spec = data[name]
        if spec["log"]:
            (axes.set_xscale if name == "x" else axes.set_yscale)("log")
        axis.set_major_formatter(functools.partial(_tick, spec["form"]))
        if spec["ticks"]:
            axis.set_ticks(spec["ticks"])
            axis.set_minor_locator(NullLocator())
    axes.tick_params(which="minor", labelsize=7, colors=LIGHT["soft"], labelleft=False, labelbottom=False)
    axes.grid(axis="y", color=LIGHT["grid"], linewidth=0.6)
    axes.set_axisbelow(True)


def _settle(axes: Axes, data: dict[str, Any]) -> None:
    """What depends on how far the axes reach: ticks within decades, and a start at 0."""
    from matplotlib.ticker import LogLocator

    for axis, spec, ends in (
        (axes.xaxis, data["x"], axes.get_xlim()),
        (axes.yaxis, data["y"], axes.get_ylim()),
    ):
        if spec["log"] and not spec["ticks"] and ends[1] / ends[0] < _SHORT:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    if data["x"]["zero"]:
        axes.set_xlim(left=0)
    if data["y"]["zero"]:
        axes.set_ylim(bottom=0)


def _tick(form: str, value: float, _: float) -> str:
    if form == "share":
        return f"{100 * value:.0f} %"
    if form == "year":
        return f"{value:.0f}" if float(value).is_integer() else ""
    if form in ("count", "bytes"):
        for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
            if value >= size:
                return f"{value / min(size, 1e3 if unit == 'k' else size):g}{unit}"
        return f"{value:,g}"
    return f"{value:g}"


def _series(axes: Axes, one: dict[str, Any]) -> None:
    paint = LIGHT[one["paint"]]
    points = [index for index, value in enumerate(one["y"]) if value is not None]
    x, y = [one["x"][index] for index in points], [one["y"][index] for index in points]
    low, high = ([one[end][index] for index in points] if one[end] else [] for end in ("low", "high"))
    label = one["name"] if one["name"] not in axes.get_legend_handles_labels()[1] else "_"
    marker: dict[str, Any] = {"marker": _MARKERS[one["marker"]], "markersize": 5, "markeredgecolor": paint}
    marker["markerfacecolor"] = "white" if one["hollow"] else paint
    if one["kind"] in ("line", "band") and low:
        axes.fill_between(
            x, low, high, color=paint, alpha=0.18, linewidth=0, label=label if one["kind"] == "band" else "_"
        )
    if one["kind"] == "line":
        dash: Any = (0, tuple(float(part) / 2 for part in one["dash"].split())) if one["dash"] else "solid"
        broad: dict[str, Any] = {"linewidth": 6, "alpha": one["alpha"]} if one["width"] > 4 else {"linewidth": 1.6}
        axes.plot(x, y, color=paint, linestyle=dash, label=label, **broad, **marker)
    if one["kind"] == "points":
        left, right = ([one[end][index] for index in points] if one[end] else [] for end in ("left", "right"))
        errors: dict[str, Any] = {"fmt": " ", "elinewidth": 1, "capsize": 2, "color": paint}
        if low:
            errors["yerr"] = _off(y, low, high)
        if left:
            errors["xerr"] = _off(x, left, right)
        axes.errorbar(x, y, label=label, **errors, **marker)


def _off(middle: list[float], low: list[float], high: list[float]) -> list[list[float]]:
    """Distances of ends; an end on the wrong side is none."""
    down = [max(0.0, value - end) for value, end in zip(middle, low, strict=True)]
    return [down, [max(0.0, end - value) for value, end in zip(middle, high, strict=True)]]


def _mark(axes: Axes, mark: dict[str, Any]) -> None:
    upright = mark["axis"] == "x"
    if mark["to"] is not None:
        (axes.axvspan if upright else axes.axhspan)(
            mark["at"], mark["to"], color=LIGHT["soft"], alpha=0.12, linewidth=0
        )
        return
    (axes.axvline if upright else axes.axhline)(mark["at"], color=LIGHT["soft"], linewidth=0.9, linestyle=":")
    where = ((mark["at"], 1.0), "data", "axes fraction") if upright else ((0.01, mark["at"]), "axes fraction", "data")
    axes.annotate(
        mark["label"],
        where[0],
        xycoords=(where[1], where[2]),
        xytext=(0 if upright else 3, 3),
        horizontalalignment="center" if upright else "left",
        textcoords="offset points",
        fontsize=7,
        color=LIGHT["soft"],
        parse_math=False,
    )
