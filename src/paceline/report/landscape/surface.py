"""A surface and the path on it, as plain JSON values; what is no finite number becomes None."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.report.landscape.measurement import Landscape
from paceline.report.page.figures import values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_FINER = 12
"""Points of a path on the surface from each checkpoint to the next."""


def surface_and_path(run: Landscape | None) -> dict[str, Any]:
    """What the page's script needs for the surface and the path; of a page of several runs nothing."""
    return {"surface": None if run is None else _surface(run), "path": None if run is None else _path(run)}


def _surface(run: Landscape) -> dict[str, Any] | None:
    columns = run.columns("surface", ("x", "y"))
    if run.result.surface is None or not columns:
        return None
    return {
        "x": values(run.arrays["surface_x"]),
        "y": values(run.arrays["surface_y"]),
        "values": {name: [values(row) for row in table] for name, table in columns.items()},
        "plane": run.result.surface.plane,
    }


def _path(run: Landscape) -> dict[str, Any] | None:
    if run.result.trajectory is None or "trajectory_xy" not in run.arrays:
        return None
    xy = run.arrays["trajectory_xy"]
    columns = run.columns("trajectory", ("step", "xy", "variance"))
    return {
        "step": values(run.arrays["trajectory_step"]),
        "x": values(xy[:, 0]),
        "y": values(xy[:, 1]),
        "values": {name: values(column) for name, column in columns.items()},
        "heights": _heights(run, xy),
        "trail": _trail(run, xy),
    }


def _heights(run: Landscape, points: Floats) -> dict[str, Any]:
    if not on_surface(run):
        return {}
    x, y = run.arrays["surface_x"], run.arrays["surface_y"]
    return {name: values(height(x, y, table, points)) for name, table in run.columns("surface", ("x", "y")).items()}


def _trail(run: Landscape, xy: Floats) -> dict[str, Any]:
    """The path between its checkpoints too, so that a drawn line follows the surface instead of cutting through it."""
    parts = np.arange(_FINER)[:, None] / _FINER
    legs = [start + parts * (end - start) for start, end in itertools.pairwise(xy)]
    fine = np.concatenate([*legs, xy[-1:]])
    return {"x": values(fine[:, 0]), "y": values(fine[:, 1]), "heights": _heights(run, fine)}


def on_surface(run: Landscape) -> bool:
    """Whether the path lies in the plane of the surface."""
    surface = run.result.surface
    return surface is not None and surface.plane == "pca" and "trajectory_xy" in run.arrays


def height(x: Floats, y: Floats, table: Floats, points: Floats) -> Floats:
    """The drawn surface's height above points, bilinear between its grid points.

    Args:
        x, y: (n,), (m,) ascending coordinates of the grid.
        table: (m, n).
        points: (k, 2).

    Returns:
        (k,) NaN outside the grid.
    """
    column, right = _place(x, points[:, 0])
    row, up = _place(y, points[:, 1])
    low = table[row, column] * (1 - right) + table[row, column + 1] * right
    high = table[row + 1, column] * (1 - right) + table[row + 1, column + 1] * right
    result: Floats = low * (1 - up) + high * up
    return result


def _place(axis: Floats, where: Floats) -> tuple[NDArray[np.intp], Floats]:
    """In which cell each coordinate is, and how far into it (0 to 1; NaN outside)."""
    cell = np.clip(np.searchsorted(axis, where, side="right") - 1, 0, len(axis) - 2)
    part = (where - axis[cell]) / (axis[cell + 1] - axis[cell])
    part[(part < -1e-9) | (part > 1 + 1e-9)] = np.nan
    return cell, part
