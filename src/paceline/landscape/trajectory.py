"""The measure `trajectory`: a run's path through the space of weights, seen in the plane in which it moves most.

The rows D = [w_t - w_T] for the checkpoints t before the last one T have the singular value decomposition D = U S V^T;
the first two rows of V^T span the plane, and the share of an axis is S_i^2 / sum S^2 (Li et al. 2018, section 7). D has
few rows and as many columns as there are weights, so the decomposition is made from D D^T, which is small.

Coordinates are least squares, <w_t - w_T, v_i> with orthonormal v_i: the place in the plane that is nearest to w_t.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.checkpoint.find import all_checkpoints
from paceline.checkpoint.state import load_model
from paceline.curvature.fixed_loss import Value
from paceline.landscape.interpolation import move
from paceline.landscape.kept_parts import KeptValues, blocks, mapped, save_rows
from paceline.landscape.session import Outcome, Session, as_array
from paceline.landscape.slices import Floats, evaluate
from paceline.landscape.subject import flat_weights
from paceline.landscape.target import task_settings
from paceline.parallel import agree
from paceline.records.errors import PacelineError
from paceline.records.landscape import Trajectory, finites

_LEAST = 3
"""Checkpoints that make a plane."""
_MARGIN = 0.3


@dataclass(frozen=True)
class RunPath:
    """The checkpoints of a run in their plane.

    Attributes:
        weights: (k, P) of each, mapped from a file.
        axes: (2, P) of the plane, see `principal_plane`, mapped from a file.
        steps: k optimizer steps.
        xy: (k, 2) coordinates in the plane.
        variance: (k - 1,) share of each axis.
    """

    weights: NDArray[Any]
    axes: NDArray[Any]
    steps: list[int]
    xy: Floats
    variance: Floats


def trajectory(session: Session) -> Outcome:
    """The path with the loss at each checkpoint."""
    path = run_path(session)

    def at(index: int) -> Value:
        return session.slices.value_alone(move(session.slices.point(), path.weights[index], 1.0))

    values = evaluate(session.ranks, "trajectory", len(path.steps), at)
    shares = path.variance[:2].tolist()
    result = Trajectory(steps=path.steps, variance=shares, loss=finites(values.loss))
    arrays = {
        "trajectory_step": as_array(path.steps),
        "trajectory_xy": path.xy,
        "trajectory_variance": path.variance[:10],
        **values.arrays("trajectory"),
    }
    summary = f"{len(path.steps)} checkpoints; two axes hold {100 * sum(shares):.1f} % of the variance"
    return Outcome(result, arrays, summary)


def run_path(session: Session) -> RunPath:
    """The path of the run and its plane, made by rank 0 and kept.

    Raises:
        PacelineError: too few checkpoints.
    """
    folder = session.ranks.parts / "path"
    weights, axes = folder / "weights.npy", folder / "plane.npy"

    def make() -> tuple[list[int], list[list[float]], list[float]]:
        found = checkpoints_of_path(session)
        like, layout = session.slices.point().cpu(), session.slices.layout
        rows = (flat_weights(load_model(path), layout, like, path).numpy() for _, path in found)
        save_rows(weights, rows, len(found))
        plane, xy, variance = principal_plane(mapped(weights))
        save_rows(axes, plane, len(plane))
        return [step for step, _ in found], xy.tolist(), variance.tolist()

    kept = KeptValues(session.ranks, "path/path")
    steps, xy, variance = kept.get("path", lambda: agree.from_rank_zero(make))
    return RunPath(mapped(weights), mapped(axes), steps, as_array(xy), as_array(variance))


def checkpoints_of_path(session: Session) -> list[tuple[int, Path]]:
    """The complete checkpoints of the run up to the step that is measured, the oldest first.

    Raises:
        PacelineError: there is no run, or they are too few for a plane.
    """
    run, last = session.subject.run, session.subject.step
    if run is None or last is None:
        raise PacelineError(
            "a task's fresh weights have no path", hint="--plane pca and --measure trajectory need a run"
        )
    found = all_checkpoints(run, last)
    if len(found) < _LEAST:
        raise PacelineError(
            f"{run} has {len(found)} complete checkpoints up to step {last:,}, and a path needs {_LEAST}",
            why="paceline train keeps the newest two, unless told otherwise",
            hint=f"train with --keep 100: paceline train {task_settings(session.config)[0]} --keep 100",
        )
    return found


def principal_plane(weights: NDArray[Any]) -> tuple[NDArray[Any], Floats, Floats]:
    """The plane of a path.

    Args:
        weights: (k, P) k >= 3 checkpoints in order; may be mapped from a file, it is read in blocks.

    Returns:
        axes: (2, P) orthonormal, in the dtype of the weights; of length 0 where the path does not leave a line.
        xy: (k, 2) coordinates; the last is (0, 0).
        variance: (k - 1,) share of each axis, in descending order.
    """
    count, size = weights.shape
    last = weights[-1]
    gram = np.zeros((count - 1, count - 1))
    for block in blocks(size):
        rows = weights[:-1, block].astype(np.float64) - last[block]
        gram += rows @ rows.T
    squares, vectors = np.linalg.eigh(gram)
    squares, vectors = np.maximum(squares[::-1], 0.0), vectors[:, ::-1]
    axes = np.zeros((2, size), dtype=weights.dtype)
    lengths = np.sqrt(squares[:2])
    usable = lengths > 1e-7 * max(float(lengths[0]), np.finfo(np.float64).tiny)
    xy = np.zeros((count, 2))
    for block in blocks(size):
        rows = weights[:-1, block].astype(np.float64) - last[block]
        axes[usable, block] = (vectors[:, :2].T[usable] @ rows) / lengths[usable, None]
        xy[:-1] += rows @ axes[:, block].astype(np.float64).T
    total = squares.sum()
    return axes, xy, squares / total if total else squares


def window(values: Floats, span: float, points: int) -> Floats:
    """(points,) coordinates along one axis that show all of `values` with a margin; `span` widens or narrows it."""
    low, high = float(values.min()), float(values.max())
    half = 0.5 * (high - low) * (1 + 2 * _MARGIN) * span or span
    return np.linspace(0.5 * (low + high) - half, 0.5 * (low + high) + half, points)
