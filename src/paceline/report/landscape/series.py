"""What the figures of the page draw, as plain JSON values; what is no finite number becomes None."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.report.landscape.measurement import Landscape
from paceline.report.page.figures import evenly, values
from paceline.report.page.theme import look

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST = 2000
"""Points of a drawn curve; what is finer is no wider than a pixel."""
LOG_FROM = 30.0
"""Losses that differ by more than this factor are shown on a logarithmic axis at first."""
_FINER = 12
"""Points of a path on the surface from each checkpoint to the next."""


def payload(runs: Sequence[Landscape], names: Sequence[str]) -> dict[str, Any]:
    """Everything that the page's script needs.

    Args:
        runs: at least one; the surface is of the first, and drawn only where it is the only one.
        names: how each is called.
    """
    return {
        "runs": [_run(run, name, index) for index, (run, name) in enumerate(zip(runs, names, strict=True))],
        "surface": _surface(runs[0]) if len(runs) == 1 else None,
        "path": _path(runs[0]) if len(runs) == 1 else None,
    }


def _run(run: Landscape, name: str, index: int) -> dict[str, Any]:
    style = look(index)
    eigenvalues = run.arrays.get("eigenvalues", np.zeros(0))
    return {
        "name": name,
        "colour": style.colour,
        "dash": style.dash,
        "marker": style.marker,
        "line": _curve(run, "line", "t"),
        "interpolation": _curve(run, "interpolation", "t"),
        "eigenvalues": {
            "value": values(eigenvalues),
            "residual": values(run.arrays.get("eigenvalues_residual", np.zeros_like(eigenvalues))),
        }
        if len(eigenvalues)
        else None,
        "density": _density(run),
    }


def _curve(run: Landscape, prefix: str, axis: str) -> dict[str, Any] | None:
    where = run.arrays.get(f"{prefix}_{axis}")
    columns = run.columns(prefix, (axis,))
    if where is None or not columns:
        return None
    kept = evenly(len(where), MOST)
    return {
        "t": values(where[kept]),
        "values": {name: values(column[kept]) for name, column in columns.items()},
    }


def _density(run: Landscape) -> dict[str, Any] | None:
    if "density_grid" not in run.arrays:
        return None
    kept = evenly(len(run.arrays["density_grid"]), MOST)
    value = run.arrays["density_value"][kept]
    error = run.arrays.get("density_error", np.zeros_like(run.arrays["density_grid"]))[kept]
    return {
        "grid": values(run.arrays["density_grid"][kept]),
        "value": values(value),
        "low": values(np.maximum(value - error, 0)),
        "high": values(value + error),
    }


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
