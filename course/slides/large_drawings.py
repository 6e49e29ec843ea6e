"""Drawings of the decks on large batches and of the review: drawn or computed from formulae, none of it measured."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, VIOLET, Canvas
from paceline_course.slides.registry import figure


def _box(axes: Any, place: tuple[float, float], size: tuple[float, float], colour: str, text: str = "") -> Any:
    from matplotlib.patches import FancyBboxPatch

    box = FancyBboxPatch(place, *size, boxstyle="round,pad=0,rounding_size=0.12", facecolor="none", edgecolor=colour,
                         linewidth=2.2, clip_on=False)  # fmt: skip
    axes.add_patch(box)
    if text:
        axes.text(place[0] + size[0] / 2, place[1] + size[1] / 2, text, ha="center", va="center", fontsize=14)
    return box


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str = GREY) -> Any:
    return axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2})


@figure("batch-grows")
def batch_grows(canvas: Canvas) -> str:
    """One worker and four, with the batch of each kept or the whole batch kept."""
    axes = canvas.blank(10, 8)
    rows = ((6.3, 1, 1.6, BLUE, "one worker"), (3.8, 4, 1.6, ORANGE, "four workers,\nb kept: B grows"),
            (1.3, 4, 0.4, GREEN, "four workers,\nB kept: b shrinks"))  # fmt: skip
    for bottom, workers, width, colour, text in rows:
        axes.text(0, bottom + 0.6, text, va="center", fontsize=15)
        for worker in range(workers):
            _box(axes, (3.6 + worker * width, bottom), (width * 0.9, 1.2), colour)
    axes.text(3.6 + 0.72, 6.9, "b", ha="center", va="center", fontsize=16)
    return (
        "With four workers either the batch of each is kept and the whole grows, or the whole is kept and each shrinks"
    )


def _points(seed: int = 3) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    x = random.uniform(0.2, 2, 1000)
    return x, 1.5 * x + random.normal(0, 1.2, x.size)


@figure("batch-surfaces")
def batch_surfaces(canvas: Canvas) -> str:
    """Loss over the slope of a line: of all points, and of single batches."""
    x, y = _points()
    slopes = np.linspace(-0.2, 3.2, 120)
    random = np.random.default_rng(1)
    panels = canvas.axes(1, 2, sharey=True)
    for axes, size, colour in zip(panels, (4, 64), (ORANGE, BLUE), strict=True):
        for _ in range(8):
            picked = random.choice(x.size, size, replace=False)
            loss = ((slopes[:, None] * x[picked] - y[picked]) ** 2).mean(1)
            axes.plot(slopes, loss, color=colour, alpha=0.55, linewidth=1.6)
            axes.plot(slopes[loss.argmin()], loss.min(), "o", color=colour, markersize=6)
        whole = ((slopes[:, None] * x - y) ** 2).mean(1)
        axes.plot(slopes, whole, color=INK, linewidth=3)
        axes.plot(slopes[whole.argmin()], whole.min(), "o", color=INK, markersize=9)
        axes.set(title=f"batches of {size}; thick: all points", xlabel="slope", ylim=(0, 7))
    panels[0].set_ylabel("loss, computed")
    return "The loss curves of batches of 4 and their minima lie far apart; those of batches of 64 lie near that of all"


@figure("noise-law")
def noise_law(canvas: Canvas) -> str:
    """Variance of the batch gradient over the batch, drawn with replacement."""
    x, y = _points()
    gradients = 2 * x * (0.5 * x - y)
    random = np.random.default_rng(0)
    sizes = 2 ** np.arange(10)
    found = [np.var(random.choice(gradients, (2000, size)).mean(1)) for size in sizes]
    axes = canvas.axes()
    axes.loglog(sizes, found, "o", color=BLUE, markersize=9, label="2000 batches each")
    axes.loglog(sizes, gradients.var() / sizes, "--", color=ORANGE, label="tr(Σ) / B")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes[::3], [f"{size}" for size in sizes[::3]])
    axes.set(xlabel="batch B", ylabel="variance of the gradient, computed")
    axes.legend()
    return "The variance of a batch's gradient falls as one over the batch: a straight line of slope minus one"


@figure("three-regimes")
def three_regimes(canvas: Canvas) -> str:
    """Steps over the batch, without numbers."""
    axes = canvas.axes()
    batch = np.logspace(0, 4, 200)
    steps = 1 + 60 / batch + 3 / np.sqrt(batch)
    axes.loglog(batch, steps, color=BLUE, linewidth=3.5)
    axes.loglog(batch[:110], steps[0] / batch[:110], "--", color=GREY)
    for border in (12, 400):
        axes.axvline(border, color=GREY, linewidth=1)
    words = ((3.3, "perfect\nscaling"), (70, "diminishing\nreturns"), (2200, "no gain"))
    for number, (place, text) in enumerate(words):
        artist = axes.text(place, 90, text, ha="center", va="top", fontsize=15)
        canvas.step(artist, number + 1)
    axes.set(xlabel="batch", ylabel="steps to a target", ylim=(0.8, 120), xlim=(1, 1e4))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.minorticks_off()
    return "Steps to a target over the batch, both logarithmic: straight down, then bending, then flat"


@figure("hyperbola")
def hyperbola(canvas: Canvas) -> str:
    """Steps against samples for all batches, in units of the least of either."""
    axes = canvas.axes()
    ratio = np.logspace(-1.5, 1.5, 100)  # batch over critical batch
    axes.loglog(1 + ratio, 1 + 1 / ratio, color=BLUE, linewidth=3)
    words = ((0.1, "small batch:\nfew samples, many steps"), (1, "critical batch:\ntwice the least of either"),
             (10, "large batch:\nmany samples, few steps"))  # fmt: skip
    for at, text in words:
        axes.plot(1 + at, 1 + 1 / at, "o", color=ORANGE, markersize=11)
        axes.text((1 + at) * 1.15, (1 + 1 / at) * 1.08, text, fontsize=13, va="bottom")
    axes.set_xticks([1, 2, 10], ["1", "2", "10"])
    axes.set_yticks([1, 2, 10], ["1", "2", "10"])
    axes.minorticks_off()
    axes.set(xlabel="samples / least samples", ylabel="steps / least steps", xlim=(0.95, 120), ylim=(0.95, 40))
    return "A hyperbola from few samples and many steps to many samples and few; the critical batch is at its corner"


@figure("rules-idea")
def rules_idea(canvas: Canvas) -> str:
    """Four small steps, and one of four times the rate."""
    axes = canvas.blank(10, 8)
    moves = np.array([[1.5, 0.7], [1.8, -0.6], [1.6, 0.9], [1.7, -0.1]])
    places = np.array([0.6, 4.6]) + np.vstack([[0, 0], np.cumsum(moves, 0)])
    for start, end in itertools.pairwise(places):
        _arrow(axes, tuple(start), tuple(end), BLUE)
    axes.text(3.6, 6.6, "four steps of rate η", ha="center", fontsize=16)
    canvas.step(_arrow(axes, (0.6, 2.2), (7.4, 3.3), ORANGE), 1)
    axes.text(3.6, 1.2, "one step of rate 4 η,\nwith the mean of four gradients", ha="center", fontsize=16)
    axes.text(8.0, 4.6, "the same\nplace, if the\ngradient\nhardly\nchanges\non the way", fontsize=14, va="center")
    return "Four short steps and one step four times as long end near the same place"


@figure("goyal-table")
def goyal_table(canvas: Canvas) -> str:
    """Published top-1 errors of ResNet-50 at batch 8192, and at 256."""
    rows = (("256, rate 0.1", 23.60, 0.12, BLUE), ("8k, linear, gradual warm-up", 23.74, 0.09, GREEN),
            ("8k, linear, no warm-up", 24.84, 0.37, ORANGE), ("8k, linear, constant warm-up", 25.88, 0.56, ORANGE),
            ("8k, root", 26.22, 0.03, ORANGE), ("8k, rate 0.1", 41.67, 0.10, RED))  # fmt: skip
    axes = canvas.axes()
    for place, (name, error, spread, colour) in enumerate(rows[::-1]):
        axes.barh(place, error, xerr=spread, color=colour, height=0.62, error_kw={"ecolor": INK, "capsize": 4})
        axes.text(error + spread + 0.5, place, f"{error:.2f} ± {spread:.2f}", va="center", fontsize=14)
        axes.text(0.5, place, name, va="center", fontsize=14, color="white")
    axes.set_yticks([])
    axes.set(xlim=(0, 50), xlabel="top-1 error, % (Goyal et al. 2017)")
    return "Published errors: batch 8192 with linear rule and gradual warm-up equals batch 256; all others are worse"


@figure("warm-ups")
def warm_ups(canvas: Canvas) -> str:
    """Rates over the steps of a run."""
    axes = canvas.axes()
    step = np.arange(100)
    fall = np.where(step < 10, 1, 0.5 * (1 + np.cos(np.pi * (step - 10) / 90)))
    gradual = np.where(step < 10, (step + 1) / 10, fall)
    axes.plot(
        step, np.where(step < 10, 0.25, fall), color=ORANGE, drawstyle="steps-post", label="constant, then a leap"
    )
    axes.plot(step, gradual, color=BLUE, linewidth=3, label="gradual, every step")
    axes.plot(step[:11], fall[:11], "--", color=GREY, label="none")
    axes.axvspan(0, 10, color=BLUE, alpha=0.1)
    axes.text(11, 0.06, "warm-up", fontsize=14)
    axes.set_xticks([])
    axes.set_yticks([0, 1], ["0", "peak"])
    axes.set(xlabel="steps", ylabel="rate")
    axes.legend(loc="upper right", fontsize=13)
    axes.set_ylim(0, 1.35)
    return "The rate over a run: a gradual warm-up rises to the peak, a constant one leaps; then a cosine falls to zero"


@figure("momentum")
def momentum(canvas: Canvas) -> str:
    """The way down a ravine, without and with momentum."""
    curvature = np.array([1.0, 20.0])
    panels = canvas.axes(1, 2, sharey=True)
    x, y = np.meshgrid(np.linspace(-10.5, 1.5, 90), np.linspace(-2.6, 2.6, 60))
    for axes, mu in zip(panels, (0.0, 0.8), strict=True):
        axes.contour(x, y, 0.5 * (curvature[0] * x**2 + curvature[1] * y**2), levels=9, colors=GREY, linewidths=0.8)
        place, velocity, path = np.array([-10.0, 2.0]), np.zeros(2), [np.array([-10.0, 2.0])]
        for _ in range(30):
            velocity = mu * velocity + curvature * place
            place = place - 0.03 * velocity
            path.append(place)
        way = np.array(path)
        axes.plot(way[:, 0], way[:, 1], "o-", color=BLUE if mu == 0 else ORANGE, markersize=4, linewidth=1.6)
        axes.set(title=f"μ = {mu:g}, 30 steps, computed", ylim=(-2.6, 2.6))
        axes.set_xticks([])
        axes.set_yticks([])
    return "After 30 steps in a ravine plain descent is half way; with momentum 0.8 it has gone round the minimum"


@figure("what-they-see")
def what_they_see(canvas: Canvas) -> str:
    """A layer's gradient as a grid, and what sets the length of its step."""
    axes = canvas.blank(22, 8)
    kinds = (("SGD", "each number\nas it is", GREY), ("Adam", "a size for\neach number", BLUE),
             ("LARS", "|w| / |g|\nof the layer", ORANGE), ("LAMB", "Adam, then\n|w| / |u|", VIOLET),
             ("NovoGrad", "|g| of\nthe layer", GREEN), ("Muon", "singular values\nof the layer", RED))  # fmt: skip
    from matplotlib.patches import Rectangle

    random = np.random.default_rng(2)
    for number, (name, text, colour) in enumerate(kinds):
        left = 0.4 + 3.65 * number
        shades = 0.15 + 0.75 * random.random((4, 4))
        edge = INK if name in ("Adam", "LAMB") else "none"
        for row in range(4):
            for column in range(4):
                shade = shades[row, column] if name in ("SGD", "LARS", "NovoGrad") else 0.5
                axes.add_patch(Rectangle((left + 0.7 * column, 3 + 0.7 * row), 0.66, 0.66, facecolor=colour,
                                         alpha=shade, edgecolor=edge, linewidth=1, clip_on=False))  # fmt: skip
        if name in ("LARS", "LAMB", "NovoGrad", "Muon"):
            axes.add_patch(
                Rectangle((left - 0.12, 2.88), 3.0, 3.0, facecolor="none", edgecolor=INK, linewidth=2.5, clip_on=False)
            )
        if name == "Muon":
            for angle in (0.0, 0.5 * np.pi):
                axes.annotate("", (left + 1.4 + 1.2 * np.cos(angle), 4.4 + 1.2 * np.sin(angle)), (left + 1.4, 4.4),
                              arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 2})  # fmt: skip
        axes.text(left + 1.38, 6.6, name, ha="center", fontsize=16, weight="bold")
        axes.text(left + 1.38, 2.4, text, ha="center", va="top", fontsize=13)
    return (
        "What sets the length of a step: single numbers for SGD and Adam, whole layers for LARS, LAMB, NovoGrad, Muon"
    )


@figure("batch-norms")
def batch_norms(canvas: Canvas) -> str:
    """Which samples are normalised together, on two workers of eight."""
    axes = canvas.blank(22, 8)
    from matplotlib.patches import Circle

    kinds = (("local", ((0, 8), (8, 16)), BLUE), ("synchronised", ((0, 16),), ORANGE),
             ("ghost, of four", ((0, 4), (4, 8), (8, 12), (12, 16)), GREEN))  # fmt: skip
    for number, (name, groups, colour) in enumerate(kinds):
        bottom = 5.2 - 2.3 * number
        axes.text(0.2, bottom + 0.65, name, va="center", fontsize=16, weight="bold")
        for sample in range(16):
            x = 5.6 + sample * 0.92 + (0.6 if sample >= 8 else 0)
            axes.add_patch(Circle((x, bottom + 0.65), 0.3, facecolor=colour, alpha=0.6, clip_on=False))
        for first, last in groups:
            left = 5.6 + first * 0.92 - 0.42 + (0.6 if first >= 8 else 0)
            right = 5.6 + (last - 1) * 0.92 + 0.42 + (0.6 if last > 8 else 0)
            _box(axes, (left, bottom), (right - left, 1.3), colour)
    axes.text(5.6 + 3.2, 7.2, "worker 0", ha="center", fontsize=14)
    axes.text(5.6 + 11.2, 7.2, "worker 1", ha="center", fontsize=14)
    axes.axvline(5.6 + 7.5 * 0.92 + 0.3, ymin=0.03, ymax=0.9, color=GREY, linestyle="--", clip_on=False)
    return "Local: each worker normalises its own samples; synchronised: all together; ghost: fixed groups of four"


@figure("smoothing")
def smoothing(canvas: Canvas) -> str:
    """The target of one sample, hard and smoothed."""
    axes = canvas.axes()
    classes = np.arange(10)
    hard = (classes == 3).astype(float)
    axes.bar(classes - 0.2, hard, 0.4, color=GREY, label="hard")
    axes.bar(classes + 0.2, 0.9 * hard + 0.01, 0.4, color=BLUE, label="smoothed, s = 0.1")
    axes.set_xticks(classes)
    axes.set(xlabel="class", ylabel="target")
    axes.legend(fontsize=13)
    return "A hard target has one for the right class; a smoothed one has 0.91 there and 0.01 for each other class"


@figure("sharp-flat")
def sharp_flat(canvas: Canvas) -> str:
    """Two minima; the loss of other data is moved a little."""
    axes = canvas.axes()
    x = np.linspace(-3.4, 3.4, 400)

    def loss(at: Any) -> Any:
        return 1.3 - 1.3 * np.exp(-(((at + 1.5) / 1.3) ** 2)) - 1.3 * np.exp(-(((at - 1.9) / 0.32) ** 2))

    axes.plot(x, loss(x), color=BLUE, linewidth=3, label="training loss")
    axes.plot(x, loss(x - 0.2), "--", color=ORANGE, linewidth=3, label="on other data")
    for place, word in ((-1.5, "flat"), (1.9, "sharp")):
        axes.plot([place, place], [loss(place), loss(place - 0.2)], color=INK, linewidth=2)
        axes.plot(place, loss(place - 0.2), "o", color=INK, markersize=9)
        axes.text(place, -0.22, word, ha="center", fontsize=16)
    axes.set(ylim=(-0.35, 2.1), xlabel="a weight", ylabel="loss")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(loc="upper center", fontsize=13)
    return "Where the loss is moved a little, it hardly rises at a flat minimum, and much at a sharp one"


@figure("dinh")
def dinh(canvas: Canvas) -> str:
    """Slices of (w1 w2 - 1)^2 / 2 at points that compute the same."""
    axes = canvas.axes()
    step = np.linspace(-0.25, 0.25, 201)
    for a, colour in ((1, BLUE), (2, GREEN), (5, ORANGE), (10, RED)):
        # The sharpest direction at (a, 1/a) is that of the gradient of w1 w2: (1/a, a).
        sharpest = a**2 + 1 / a**2
        unit = np.array([1 / a, a]) / np.sqrt(sharpest)
        product = (a + step * unit[0]) * (1 / a + step * unit[1])
        axes.plot(step, 0.5 * (product - 1) ** 2, color=colour, label=f"({a}, 1/{a}): {sharpest:.4g}")
    axes.set(ylim=(0, 0.6), xlabel="distance along the sharpest direction", ylabel="loss, computed")
    axes.legend(title="weights: largest eigenvalue", fontsize=13, title_fontsize=13, ncols=2, loc="upper center",
                bbox_to_anchor=(0.5, -0.16))  # fmt: skip
    return "The same function at four pairs of weights: the valley around them grows from flat to very sharp"


# The review


@figure("all-labs")
def all_labs(canvas: Canvas) -> str:
    """What each lab gave."""
    axes = canvas.blank(22, 8)
    rows = (
        (5.2, (("L0", "a machine\nthat works", GREY), ("L1", "why batches\nwork at all", BLUE),
               ("L2", "what a batch\nbuys", BLUE), ("L3", "all-reduce\nby hand", ORANGE),
               ("L4", "a DDP of\nyour own", ORANGE), ("L5", "a script on\nmany devices", ORANGE))),
        (1.0, (("L6", "faults that\nraise no error", GREEN), ("L7", "where scaling\nends", GREEN),
               ("L8", "accuracy,\nkept", VIOLET), ("L9", "curvature\nand noise", VIOLET),
               ("L10", "resume,\nelastic, smaller", GREY))),
    )  # fmt: skip
    for bottom, labs in rows:
        for number, (name, gave, colour) in enumerate(labs):
            left = 0.1 + 3.7 * number
            _box(axes, (left, bottom), (3.15, 2.3), colour)
            axes.text(left + 1.57, bottom + 1.8, name, ha="center", va="center", fontsize=16, weight="bold")
            axes.text(left + 1.57, bottom + 0.8, gave, ha="center", va="center", fontsize=13)
            if number < len(labs) - 1:
                _arrow(axes, (left + 3.15, bottom + 1.15), (left + 3.7, bottom + 1.15))
    words = ((0, "understand", BLUE), (4.2, "build", ORANGE), (6.9, "trust", GREEN), (9.5, "keep the accuracy", VIOLET))
    for left, word, colour in words:
        axes.text(left + 0.1, 4.2, word, fontsize=15, color=colour, weight="bold", va="center")
    return "Eleven labs in a row, and what each gave: from a machine that works to a training that resumes"


@figure("choose")
def choose(canvas: Canvas) -> str:
    """From measurements to a decision."""
    axes = canvas.blank(22, 8)
    stages = (("samples\na second", "speed"), ("steps\nto the target", "batch"), ("seconds\nto the target", "both"),
              ("rate, warm-up,\noptimizer", "train"), ("several seeds,\nan interval", "report"))  # fmt: skip
    for number, (what, verb) in enumerate(stages):
        left = 0.1 + 4.45 * number
        _box(axes, (left, 4.4), (3.7, 2.4), BLUE if number < 3 else GREEN, what)
        commands = {"speed": "plan speed", "batch": "plan batch", "both": "their product"}
        axes.text(left + 1.85, 3.7, commands.get(verb, verb), ha="center", va="center", fontsize=15, family="monospace")
        if number < len(stages) - 1:
            _arrow(axes, (left + 3.7, 5.6), (left + 4.45, 5.6))
    axes.plot([1.95, 1.95, 19.75, 19.75], [2.0, 1.7, 1.7, 3.1], color=GREY, linewidth=2, clip_on=False)
    _arrow(axes, (1.95, 1.9), (1.95, 3.3))
    axes.text(11, 1.0, "not shown to hold? A smaller batch, or longer training", ha="center", fontsize=15, va="center")
    return "Samples a second and steps give seconds; then rate and optimizer; then seeds and an interval; else back"


@figure("sharding")
def sharding(canvas: Canvas) -> str:
    """What each of four ranks holds: copies, a sharded optimizer, everything sharded."""
    from matplotlib.patches import Rectangle

    axes = canvas.blank(22, 8)
    kinds = (("every rank has all", (1, 1, 1)), ("optimizer in parts", (1, 1, 4)), ("all in parts", (4, 4, 4)))
    for number, (name, parts) in enumerate(kinds):
        for rank in range(4):
            left, bottom = 0.5 + 7.4 * number + 1.5 * rank, 1.2
            for size, part, colour in zip((1.4, 1.4, 2.6), parts, (BLUE, ORANGE, GREEN), strict=True):
                axes.add_patch(Rectangle((left, bottom), 1.1, size, facecolor="none", edgecolor=colour, clip_on=False))
                height = size / part
                axes.add_patch(Rectangle((left, bottom + (rank * height if part > 1 else 0)), 1.1, height,
                                         facecolor=colour, alpha=0.75, clip_on=False))  # fmt: skip
                bottom += size + 0.12
        axes.text(0.5 + 7.4 * number + 2.8, 0.5, name, ha="center", fontsize=15, va="center")
    for left, word, colour in ((2, "weights", BLUE), (9, "gradients", ORANGE), (16, "optimizer's state", GREEN)):
        axes.add_patch(Rectangle((left, 7.35), 0.6, 0.5, facecolor=colour, alpha=0.75, clip_on=False))
        axes.text(left + 0.9, 7.6, word, va="center", fontsize=15)
    return (
        "Four ranks: each with all weights, gradients and optimizer state; with a quarter of the state; of everything"
    )
