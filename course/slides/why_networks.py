"""Deck D2: figures of real networks and their surfaces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from paceline.tasks.linear import best_fit
from paceline_course.checking import load_module
from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, Canvas
from paceline_course.slides.registry import Record, figure

_base = load_module(Path(__file__).with_name("why.py"), "paceline_course_slides_why")
_cell = _base._cell
_between = _base._between
SURFACE = _base.SURFACE
_line = load_module(Path(__file__).with_name("why_line.py"), "paceline_course_slides_why_line")
_points = _line._points
_loss = _line._loss
_path = _line._path
_bowl = _line._bowl


# ---------------------------------------------------------------------------------------------------------------------
# Figures of D2: what a network adds


@figure("why-bend")
def bend(canvas: Canvas) -> str:
    """Two layers without and with a nonlinearity, fitted to the same example."""
    x = np.linspace(-1, 1, 60)
    target = np.sin(3.4 * x) * (1 - 0.35 * x)
    noisy = target + np.random.default_rng(2).normal(0, 0.12, len(x))
    for axes, units, name, colour in zip(
        canvas.axes(1, 2, sharey=True), (0, 8), ("linear, linear", "linear, ReLU, linear"), (RED, GREEN), strict=True
    ):
        knots = np.linspace(-1, 0.8, units) if units else np.array([])
        design = np.column_stack([np.ones_like(x), x, *(np.maximum(x - knot, 0) for knot in knots)])
        weights = np.linalg.lstsq(design, noisy, rcond=None)[0]
        axes.plot(x, noisy, "o", color=BLUE, markersize=4.5, alpha=0.7)
        axes.plot(x, design @ weights, color=colour, linewidth=3.5)
        axes.set(title=name, xlabel="x", xticks=[-1, 0, 1])
    return "Two linear layers can only draw a line through bent points; with a ReLU between them the curve bends along"


@figure("why-connections")
def connections(canvas: Canvas) -> str:
    """All connections beside those of a convolution, whose weights are shared."""
    axes = canvas.blank(22, 8)
    for left, name, note in (
        (1.5, "all connected", "every line a weight of its own: 49"),
        (13.0, "convolution", "three weights, used again at every place"),
    ):
        top = np.linspace(left, left + 6.6, 7)
        for one, low in enumerate(top):
            for other, high in enumerate(top):
                near = other - one
                if left < 5:
                    axes.plot([low, high], [2.1, 5.6], color=GREY, linewidth=0.9)
                elif abs(near) <= 1:
                    axes.plot([low, high], [2.1, 5.6], color=(BLUE, ORANGE, GREEN)[near + 1], linewidth=2.4)
        axes.plot(top, [2.1] * 7, "o", color=INK, markersize=12)
        axes.plot(top, [5.6] * 7, "o", color=INK, markersize=12)
        axes.text(left + 3.3, 6.9, name, ha="center", fontsize=17, weight="bold")
        axes.text(left + 3.3, 0.7, note, ha="center", fontsize=14)
    return "Seven inputs and seven outputs: all connected by 49 lines, or each to three by shared weights"


@figure("why-layers")
def layers(canvas: Canvas) -> str:
    """Weights and multiply-adds of each layer of the task's network, counted from its shapes."""
    names = ("convolution 1", "convolution 2", "linear 1", "linear 2")
    weights = (9 * 32, 9 * 32 * 64, 64 * 49 * 128, 128 * 10)
    work = (28 * 28 * weights[0], 14 * 14 * weights[1], weights[2], weights[3])
    left, right = canvas.axes(1, 2, sharey=True)
    for axes, counts, title, colour in (
        (left, weights, "weights", BLUE),
        (right, work, "multiply-adds an image", ORANGE),
    ):
        axes.barh(range(4), counts, color=colour, height=0.62)
        for place, count in enumerate(counts):
            axes.text(count * 1.2, place, f"{count:,}", va="center", fontsize=13, weight="bold")
        axes.set(xscale="log", xlim=(100, max(counts) * 30), title=title, ylim=(3.6, -0.6))
        axes.set_yticks(range(4), names)
        axes.minorticks_off()
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    return (
        "The linear layer has most of the weights, 401,408; the second convolution does most of the work, 3.6 million"
    )


@figure("why-skip")
def skip(canvas: Canvas) -> str:
    """A block without and with a connection past it."""
    axes = canvas.blank(12, 10)
    for left, residual in ((2.8, False), (9.0, True)):
        colour = GREEN if residual else GREY
        for y, text in ((6.8, "layer"), (4.6, "layer")):
            axes.text(left, y, text, ha="center", va="center", fontsize=15,
                      bbox={"boxstyle": "round,pad=0.55", "facecolor": "none", "edgecolor": INK})  # fmt: skip
        for high, low in ((8.9, 7.5), (6.1, 5.3), (3.9, 2.6 if residual else 1.4)):
            axes.annotate(
                "", (left, low), (left, high), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2}
            )
        axes.text(left, 9.3, "x", ha="center", fontsize=17)
        if residual:
            axes.plot([left, left + 2.1, left + 2.1], [8.5, 8.5, 2.2], color=colour, linewidth=3.5)
            axes.annotate(
                "",
                (left + 0.4, 2.2),
                (left + 2.15, 2.2),
                arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 3.5},
            )
            axes.text(left, 2.2, "+", ha="center", va="center", fontsize=22, weight="bold", color=colour)
            axes.annotate("", (left, 1.1), (left, 1.8), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2})
        axes.text(left, 0.4, "x + F(x)" if residual else "F(x)", ha="center", fontsize=17)
    return (
        "A plain block gives F of x; with a skip connection x goes past the two layers and is added to what they give"
    )


@figure("why-batch-norm")
def batch_norm(canvas: Canvas) -> str:
    """Outputs of three channels before and after they are normalised over a batch: an example."""
    generator = np.random.default_rng(4)
    channels = [generator.normal(mean, spread, 400) for mean, spread in ((-2.5, 0.5), (0.5, 1.6), (3.5, 0.9))]
    bins = np.linspace(-6, 7, 53)
    for axes, title, normalise in zip(canvas.axes(2, 1, sharex=True), ("before", "after"), (False, True), strict=True):
        for channel, colour in zip(channels, (BLUE, ORANGE, GREEN), strict=True):
            shown = (channel - channel.mean()) / channel.std() if normalise else channel
            axes.hist(shown, bins=bins, color=colour, alpha=0.6)
        axes.set_title(title, loc="left")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    return "Three channels with different means and spreads; after normalisation all lie on each other, about zero"


# ---------------------------------------------------------------------------------------------------------------------
# Figures of D2: surfaces


@figure("why-two-surfaces", SURFACE)
def two_surfaces(canvas: Canvas, record: Record) -> str:
    """The bowl of the line, beside a plane through the weights of the trained network."""
    measured = json.loads((record.folder / "measurements" / "0-paceline-2.json").read_text(encoding="utf-8"))
    network = np.array(measured["loss"])
    along = np.linspace(-1, 1, len(network))
    x, y = _points()
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    w, b = np.meshgrid(slope + 2 * along, intercept + 2 * along)
    line = _loss(w, b)
    for place, (heights, name, up) in enumerate(
        ((line, "the line: computed", 34), (network, "a network: measured", 34)), start=1
    ):
        axes = canvas.figure.add_subplot(1, 2, place, projection="3d")
        across, deep = np.meshgrid(along, along)
        axes.plot_surface(
            across, deep, heights, cmap="viridis", rstride=1, cstride=1, edgecolor="#00000030", linewidth=0.3
        )
        axes.view_init(elev=up, azim=-56)
        axes.set_axis_off()
        axes.set_title(name, y=-0.12)
        axes.set_box_aspect((1, 1, 0.62), zoom=1.22)
    return "Two surfaces: that of the line is a smooth bowl; that of the network has one valley with uneven, bent walls"


@figure("why-between", "minima")
def between(canvas: Canvas, record: Record) -> str:
    """Loss on the straight line between two trained networks."""
    axes = canvas.axes()
    found = _between(record)
    points, losses, ends = found["points"], found["loss"], found["ends"]
    shown = [(at, loss) for at, loss in zip(points, losses, strict=True) if -0.13 <= at <= 1.13]
    axes.plot([at for at, _ in shown], [loss for _, loss in shown], color=BLUE, linewidth=3)
    axes.plot([0, 1], ends, "o", color=ORANGE, markersize=12, zorder=4)
    axes.annotate(
        "batch 128", (0, ends[0]), (-10, -26), textcoords="offset points", color=ORANGE, weight="bold", ha="center"
    )
    axes.annotate(
        "batch 4096", (1, ends[1]), (0, -26), textcoords="offset points", color=ORANGE, weight="bold", ha="center"
    )
    (chord,) = axes.plot([0, 1], ends, "--", color=GREY)
    at = found["barrier_at"]
    straight = ends[0] + at * (ends[1] - ends[0])
    arrow = axes.annotate(
        "",
        (at, straight + found["barrier"]),
        (at, straight),
        arrowprops={"arrowstyle": "<|-|>", "color": RED, "linewidth": 2},
    )
    text = axes.text(
        at + 0.015, straight + 0.45 * found["barrier"], f"barrier {found['barrier']:.2f}", color=RED, weight="bold"
    )
    for artist in (chord, arrow, text):
        canvas.step(artist, 1)
    axes.set(xlabel="part of the way", ylabel="training loss", ylim=(-0.04, 0.46))
    return "On the way between two trained networks the loss rises well above the straight line between its ends"


@figure("why-slices", "minima")
def slices(canvas: Canvas, record: Record) -> str:
    """Loss along one filter-normalised direction through each of three ends."""
    axes = canvas.axes()
    for setting, name, colour in (
        ("small", "batch 128", BLUE),
        ("large", "batch 4096, same rate", ORANGE),
        ("large-muon", "batch 4096, Muon", GREEN),
    ):
        line = _cell(record, f"{setting}-sharpness")["result"]["line"]
        axes.plot(line["points"], line["loss"], color=colour, label=name)
    axes.set(yscale="log", xlabel="distance, in lengths of the filters", ylabel="training loss")
    axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.minorticks_off()
    axes.legend(fontsize=12, loc="upper center")
    return "Three slices: each falls to one lowest point at distance zero and rises on both sides, unevenly"


@figure("why-depth")
def depth(canvas: Canvas) -> str:
    """Published errors of networks of two depths, without and with skip connections."""
    axes = canvas.axes()
    for name, errors, colour in (("without skips", (27.94, 28.54), RED), ("with skips", (27.88, 25.03), GREEN)):
        axes.plot([18, 34], errors, "o-", color=colour, markersize=11, linewidth=3)
        axes.annotate(
            f"{name}: {errors[1]:.2f} %",
            (34, errors[1]),
            (12, 0),
            textcoords="offset points",
            color=colour,
            weight="bold",
            va="center",
        )
    axes.set(xlabel="layers", ylabel="top-1 error on ImageNet, %", xlim=(15, 58), ylim=(24, 29.5))
    axes.set_xticks([18, 34])
    return "From 18 to 34 layers the error rises without skip connections and falls by nearly three points with them"


@figure("why-saddle")
def saddle(canvas: Canvas) -> str:
    """Two weights in a row that are to multiply by one: a curve of minima, and a saddle at zero. An example."""
    axes = canvas.axes()
    first, second = np.meshgrid(np.linspace(-2.4, 2.4, 120), np.linspace(-2.4, 2.4, 120))
    axes.contourf(first, second, np.log10((first * second - 1) ** 2 / 2 + 0.02), levels=14, cmap="Blues_r", alpha=0.85)
    curve = np.linspace(0.42, 2.4, 60)
    for sign in (1, -1):
        axes.plot(sign * curve, sign / curve, color="gold", linewidth=4)
    for start, colour in (((-1.9, 1.75), ORANGE), ((0.35, -0.3), RED), ((1.4, -1.55), ORANGE), ((-0.05, -0.6), RED)):
        at, path = np.array(start), [np.array(start)]
        for _ in range(400):
            at = at - 0.03 * (at[0] * at[1] - 1) * at[::-1]
            path.append(at)
        axes.plot(*np.array(path).T, color=colour, linewidth=2.2)
        axes.plot(*path[0], "o", color=colour, markersize=7)
    axes.plot(0, 0, "X", color="#ffffff", markersize=13, markeredgecolor="#000000")
    axes.set(xlabel="w₁", ylabel="w₂", aspect="equal", xlim=(-2.4, 2.4), ylim=(-2.4, 2.4))
    return "Loss over two weights: minima form two curves, between them a saddle, which paths from four starts go round"


@figure("why-paths")
def paths(canvas: Canvas) -> str:
    """Paths on the surface of the line with all points, 16 and one at a time."""
    kinds = ((100, 40, ORANGE, "all 100 points"), (16, 5, GREEN, "batches of 16"), (1, 5, RED, "one at a time"))
    for axes, (size, epochs, colour, name) in zip(canvas.axes(1, 3, sharey=True), kinds, strict=True):
        path = _path(epochs, size)
        _bowl(axes)
        axes.label_outer()
        axes.plot(path[:, 0], path[:, 1], ".-", color=colour, markersize=5, linewidth=1.3)
        axes.set_title(f"{name}:\n{epochs} epochs, {len(path) - 1} steps")
    return "Three paths: smooth with all points, staggering with batches of 16, a wide cloud with one at a time"
