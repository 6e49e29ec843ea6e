"""Pictures and helpers of lab 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from paceline.tasks.linear import best_fit
from paceline.tasks.linear import points as column_points

Path2D = np.ndarray
"""(steps + 1, 2): w and b before the first step and after each."""


def points(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y, each (samples,), scattered about a line."""
    x, y = column_points(samples, seed)
    return x[:, 0], y[:, 0]


def scatter(x: np.ndarray, y: np.ndarray) -> None:
    """The points, and the best line through them."""
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    ends = np.array([x.min(), x.max()])
    _, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
    axis.plot(x, y, ".", alpha=0.7)
    axis.plot(ends, slope * ends + intercept, label=f"best line: {slope:.2f} x {intercept:+.2f}")
    axis.set(xlabel="x", ylabel="y")
    axis.legend(frameon=False)
    plt.show()


def descend(
    gradient: Callable[..., Any],
    x: np.ndarray,
    y: np.ndarray,
    *,
    lr: float,
    epochs: int,
    batches: Callable[..., Any] | None = None,
    size: int = 0,
) -> Path2D:
    """Gradient descent from w = b = 0, over all points at once or in batches."""
    w = b = 0.0
    path = [(w, b)]
    generator = np.random.default_rng(0)
    for _ in range(epochs):
        for rows in [np.arange(len(x))] if batches is None else batches(len(x), size, generator):
            dw, db = gradient(x[rows], y[rows], w, b)
            w, b = w - lr * dw, b - lr * db
            path.append((w, b))
    return np.array(path)


def surface(x: np.ndarray, y: np.ndarray, paths: Mapping[str, Path2D]) -> None:
    """The loss from above with the paths on it, and the loss along them."""
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    w, b = np.meshgrid(np.linspace(-0.5, 3.0, 120), np.linspace(-2.2, 0.8, 120))
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    left.contourf(w, b, np.log10(_loss(x, y, w, b)), levels=25, cmap="Blues_r")
    for name, path in paths.items():
        left.plot(path[:, 0], path[:, 1], ".-", markersize=3, linewidth=0.9, label=f"{name}, {len(path) - 1} steps")
        right.plot(_loss(x, y, path[:, 0], path[:, 1]), linewidth=1.0, label=name)
    left.plot(slope, intercept, "*", color="gold", markersize=14, markeredgecolor="black")
    left.set(xlabel="w", ylabel="b")
    left.legend(fontsize=8, loc="upper right")
    right.set(xlabel="step", ylabel="loss over all points", yscale="log")
    right.legend(fontsize=8, frameon=False)
    plt.show()


def noise_law(sizes: Sequence[int], variances: Sequence[float]) -> None:
    """Variance over the batch's size, with a line of slope -1 through the first point."""
    _, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
    axis.loglog(sizes, variances, "o", label="measured")
    axis.loglog(sizes, variances[0] / np.array(sizes), "--", color="grey", label="slope −1")
    axis.set(xlabel="points in a batch", ylabel="variance of the gradient")
    axis.legend(frameon=False)
    plt.show()


def _loss(x: np.ndarray, y: np.ndarray, w: Any, b: Any) -> np.ndarray:
    """The mean squared error for arrays of w and b."""
    w, b = np.asarray(w), np.asarray(b)
    return np.mean((w[..., None] * x + b[..., None] - y) ** 2, axis=-1)
