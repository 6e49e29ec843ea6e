"""Deck D1: figures of the smallest model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paceline.tasks.linear import best_fit
from paceline.tasks.linear import points as column_points
from paceline_course.checking import load_module
from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, VIOLET, Canvas
from paceline_course.slides.registry import figure

# ---------------------------------------------------------------------------------------------------------------------
# Figures of lab 1's line: an example of 100 points, as the lab has it

_base = load_module(Path(__file__).with_name("why.py"), "paceline_course_slides_why")
_box = _base._box


def _points() -> tuple[np.ndarray, np.ndarray]:
    x, y = column_points(100, 1)
    return x[:, 0], y[:, 0]


def _loss(w: Any, b: Any) -> Any:
    x, y = _points()
    w, b = np.asarray(w, dtype=float), np.asarray(b, dtype=float)
    return np.mean((w[..., None] * x + b[..., None] - y) ** 2, axis=-1)


def _path(epochs: int, size: int, rate: float = 0.1) -> np.ndarray:
    """(steps + 1, 2): w and b, from 0 and 0."""
    x, y = _points()
    at, path = np.zeros(2), [np.zeros(2)]
    for rows in _rows(len(x), size, epochs):
        residual = at[0] * x[rows] + at[1] - y[rows]
        at = at - rate * 2 * np.array([(residual * x[rows]).mean(), residual.mean()])
        path.append(at)
    return np.array(path)


def _rows(samples: int, size: int, epochs: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(0)
    for _ in range(epochs):
        order = generator.permutation(samples)
        yield from (order[start : start + size] for start in range(0, samples, size))


def _bowl(axes: Any) -> None:
    """The surface of the line from above, with its lowest point."""
    w, b = np.meshgrid(np.linspace(-0.3, 3.2, 90), np.linspace(-2.3, 0.5, 90))
    axes.contourf(w, b, np.log10(_loss(w, b)), levels=14, cmap="Blues_r", alpha=0.85)
    x, y = _points()
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    axes.plot(slope, intercept, "*", color="gold", markersize=17, markeredgecolor="#000000", zorder=5)
    axes.set_xlabel("w")
    axes.set_ylabel("b", rotation=0)


@figure("why-neuron")
def neuron(canvas: Canvas) -> str:
    """A neuron with one input, and the points that it is to fit."""
    left, right = canvas.axes(1, 2)
    left.set(xlim=(0, 10), ylim=(0, 6))
    left.axis("off")
    for x, y, name in ((1.2, 4.2, "x"), (1.2, 1.6, "1"), (8.3, 3, "w x + b")):
        left.text(x, y, name, ha="center", va="center", fontsize=20)
    left.plot([5.2], [3], "o", color=BLUE, markersize=52)
    left.text(5.2, 3, "+", ha="center", va="center", fontsize=26, color="#ffffff")
    for start, name, y in (((1.6, 4.1), "w", 4.15), ((1.6, 1.7), "b", 1.7)):
        left.annotate(
            "",
            (4.5, 3 + (0.3 if y > 3 else -0.3)),
            start,
            arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2.5},
        )
        left.text(3.0, y, name, fontsize=18, color=ORANGE, weight="bold", ha="center")
    left.annotate("", (7.1, 3), (5.9, 3), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2.5})
    x, y = _points()
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    right.plot(x, y, "o", color=BLUE, markersize=5, alpha=0.8)
    ends = np.array([-1.0, 1.0])
    (line,) = right.plot(ends, slope * ends + intercept, color=ORANGE, linewidth=3)
    canvas.step(line, 1)
    right.set(xlabel="x", xticks=[-1, 0, 1])
    right.set_ylabel("y", rotation=0)
    return "A neuron adds w times x and b; beside it a hundred points that scatter about a line"


@figure("why-descent")
def descent(canvas: Canvas) -> str:
    """Gradient descent on the surface of the line, and the loss along it."""
    left, right = canvas.axes(1, 2)
    path = _path(40, 100)
    _bowl(left)
    left.plot(path[:, 0], path[:, 1], ".-", color=ORANGE, markersize=8, linewidth=1.8)
    right.plot(_loss(path[:, 0], path[:, 1]), ".-", color=ORANGE, markersize=8)
    right.set(yscale="log", xlabel="step", ylabel="loss")
    right.set_yticks([0.3, 1, 3], ["0.3", "1", "3"])
    right.minorticks_off()
    return "Left, the loss over w and b, a bowl, with the path of forty steps to its lowest point; right, the loss"


def _stops(losses: list[float], patience: int, tolerance: float = 1e-3) -> int:
    """The epoch at which lab 1's rule says stop."""
    for epoch in range(patience + 1, len(losses) + 1):
        before, recent = min(losses[: epoch - patience]), min(losses[epoch - patience : epoch])
        if recent >= before * (1 - tolerance):
            return epoch
    return len(losses)


@figure("why-stop")
def stop(canvas: Canvas) -> str:
    """Losses of an example that fall noisily, and where two rules stop."""
    axes = canvas.axes()
    epochs = np.arange(1, 31)
    noise = np.random.default_rng(51).normal(0, 0.045, len(epochs))
    losses = list(0.25 + 1.9 * np.exp(-epochs / 5.0) + noise * (1 + np.exp(-epochs / 8)))
    axes.plot(epochs, losses, "o-", color=BLUE)
    for patience, colour, step, name in (
        (1, RED, 1, "the first epoch that is not better"),
        (3, GREEN, 2, "three epochs without a better one"),
    ):
        at = _stops(losses, patience)
        text = axes.annotate(f"{name}: stops at {at}", (at, losses[at - 1]), (30, 62 if patience == 1 else 50),
                             textcoords="offset points", color=colour, weight="bold", fontsize=14,
                             arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2})  # fmt: skip
        canvas.step(text, step)
    axes.set(xlabel="epoch", ylabel="loss", ylim=(0, 2.1), yticks=[0, 0.5, 1, 1.5, 2])
    return "A loss that falls with noise: one rule stops at the first epoch that is no better, a patient one later"


@figure("why-batches")
def batches(canvas: Canvas) -> str:
    """A hundred samples in batches of 16: six whole ones and one of four."""
    axes = canvas.blank(22.5, 8)
    colours = (BLUE, ORANGE, GREEN, VIOLET, RED, GREY, INK)
    of = np.empty(100, dtype=int)
    for number, rows in enumerate(_rows(100, 16, 1)):
        of[rows] = number
    for sample in range(100):
        column, row = sample % 10, sample // 10
        axes.add_patch(_box(0.2 + 0.75 * column, 6.9 - 0.75 * row, 0.62, 0.62, colours[of[sample]]))
    axes.annotate("", (10.6, 3.9), (8.4, 3.9), arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 2.5})
    axes.text(9.5, 4.4, "shuffle", ha="center", fontsize=13)
    for number in range(7):
        size = int((of == number).sum())
        for place in range(size):
            box = axes.add_patch(_box(11.2 + 0.5 * place, 6.85 - 1.1 * number, 0.42, 0.7, colours[number]))
            canvas.step(box, 1)
        text = axes.text(19.5, 7.2 - 1.1 * number, f"step {number + 1}: {size}", va="center", fontsize=15)
        canvas.step(text, 1)
    return "A hundred samples, shuffled, become six batches of sixteen and one of four: seven steps an epoch"
