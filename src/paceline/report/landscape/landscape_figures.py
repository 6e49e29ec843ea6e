"""The flat figures of a landscape page: slices along lines, values along the path, curvature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.report import words
from paceline.report.landscape import tables
from paceline.report.landscape.measurement import Landscape
from paceline.report.page.figures import Axis, Choice, Figure, Series, evenly, label, values
from paceline.report.page.theme import Look, look

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LOG_FROM = 30.0
"""Losses that differ by more than this factor are shown on a logarithmic axis at first."""
_MOST = 2000
"""Points of a drawn curve; what is finer is no wider than a pixel."""
_LOSSES = ("surface_loss", "line_loss", "interpolation_loss")


@dataclass(frozen=True)
class _Drawn:
    """A measurement as it is drawn."""

    name: str
    run: Landscape
    look: Look
    head: str
    """What begins the text under the pointer, where several are told apart."""

    @property
    def style(self) -> dict[str, Any]:
        """Of its lines."""
        return {"paint": f"run-{self.look.colour}", "dash": self.look.dash if self.head else ""}


def _drawn(runs: Mapping[str, Landscape]) -> list[_Drawn]:
    heads = [f"<b>{label(name)}</b><br>" if len(runs) > 1 else "" for name in runs]
    rows = enumerate(zip(runs.items(), heads, strict=True))
    return [_Drawn(name, run, look(index), head) for index, ((name, run), head) in rows]


def starts_logarithmic(runs: Mapping[str, Landscape]) -> bool | None:
    """Whether losses start on a logarithmic axis; None where they cannot stand on one."""
    found = [array for run in runs.values() for name, array in run.arrays.items() if name in _LOSSES]
    numbers = [float(value) for array in found for value in array.ravel() if value == value]
    if not numbers or min(numbers) <= 0:
        return None
    return max(numbers) / min(numbers) > LOG_FROM


def slice_figures(runs: Mapping[str, Landscape]) -> list[Figure]:
    """Along one direction, and between two runs; each only where a run has it."""
    line, between = (tables.curve_table(name, runs, key) for key, name in tables.SLICES.items())
    found = []
    if line is not None:
        directions = dict.fromkeys(run.result.line.directions for run in runs.values() if run.result.line is not None)
        note = f"Direction: {'; '.join(directions)}. t = 0 is the weights."
        across = Axis("t, along the first direction", tickformat=".3~g")
        series = _curves(runs, "line", ("t",), "t = %{x:.4~g}")
        found.append(Figure("plot-line", "Along one direction", note, across, _values_axis(runs), series, line))
    if between is not None:
        note = f"t = 0 is {_ends(runs)}. Dashed: the straight line between the losses of the two ends."
        across = Axis("t, from one run to the other", tickformat=".3~g")
        blends = [blend for run in runs.values() if (blend := _blend(run)) is not None]
        series = [*blends, *_curves(runs, "interpolation", ("t",), "t = %{x:.4~g}")]
        axis = _values_axis(runs)
        found.append(Figure("plot-interpolation", "Between two runs", note, across, axis, series, between))
    return found


def path_figure(run: Landscape, note: str) -> Figure:
    """The loss and metrics of the checkpoints of a path."""
    series = _curves({"": run}, "trajectory", ("step", "xy", "variance"), "step %{x:,}")
    across = Axis("steps", tickformat=",")
    axis, table = _values_axis({"": run}), tables.path_table(run)
    note = f"At each checkpoint itself. {note}"
    return Figure("plot-path-values", "Along the run's path", note, across, axis, series, table)


def curvature_figures(runs: Mapping[str, Landscape]) -> list[Figure]:
    """Eigenvalues, and their density."""
    found = []
    eigenvalues, density = tables.eigenvalue_table(runs), tables.density_table(runs)
    if eigenvalues is not None:
        converged = all(run.result.eigenvalues.converged for run in runs.values() if run.result.eigenvalues is not None)
        note = "Whiskers: residual; an eigenvalue of the Hessian lies within it."
        if not converged:
            note += " Not all have converged: see the notes above."
        across, axis = Axis("number", dtick=1), Axis("", tickformat=".3~g", zero=True)
        series = [_eigenvalues(one) for one in _drawn(runs) if len(one.run.arrays.get("eigenvalues", ()))]
        place, heading = "plot-eigenvalues", "Largest eigenvalues"
        found.append(Figure(place, heading, note, across, axis, series, eigenvalues, grouped=True))
    if density is not None:
        note = "Of the Hessian; its integral is 1. Faint: one standard error over probes."
        having = [one for one in _drawn(runs) if "density_grid" in one.run.arrays]
        highest = max(float(np.nanmax(one.run.arrays["density_value"])) for one in having)
        floor = highest * 1e-7
        ends = (math.log10(floor), math.log10(highest) + 0.3)
        axis = Axis("", log=True, tickformat=".0e", dtick=2, range=ends)
        across = Axis("eigenvalue", tickformat=".3~g")
        series = [_density(one, floor) for one in having]
        found.append(Figure("plot-density", "Density of eigenvalues", note, across, axis, series, density))
    return found


def _values_axis(runs: Mapping[str, Landscape]) -> Axis:
    """Of the loss or a metric; of the loss logarithmic where it can be, if so wished."""
    wish = Choice("column", {"loss": Choice("scale", {"log": True, "linear": False})})
    return Axis("", tickformat=".3~g", log=False if starts_logarithmic(runs) is None else wish)


def _curves(runs: Mapping[str, Landscape], prefix: str, axes: tuple[str, ...], said: str) -> list[Series]:
    """The loss and the metrics along the first of the axes, chosen by a switch, of the runs that have them.

    Args:
        runs: by name.
        prefix: of their arrays.
        axes: arrays that are no values.
        said: of a place along the axis, under the pointer.
    """
    found = []
    for one in _drawn(runs):
        columns, along = one.run.columns(prefix, axes), one.run.arrays.get(f"{prefix}_{axes[0]}")
        if along is None or not columns:
            continue
        kept = evenly(len(along), _MOST)
        y = Choice("column", {name: column[kept] for name, column in columns.items()})
        hover = Choice("column", {name: f"{one.head}{label(name)} %{{y:.4~g}}<br>{said}" for name in columns})
        style = one.style | {"marker": one.look.marker, "sparse": 40, "hover": hover}
        found.append(Series(one.name, values(along[kept]), y, **style))
    return found


def _ends(runs: Mapping[str, Landscape]) -> str:
    if len(runs) > 1:
        return "the run, t = 1 the one it is compared with"
    result = next(iter(runs.values())).result
    other = result.interpolation
    return f"{result.target}, t = 1 is {other.other if other is not None else 'the other run'}"


def _blend(run: Landscape) -> Series | None:
    """The straight line between the losses of the ends: a barrier is what rises above it."""
    t, loss = run.arrays.get("interpolation_t"), run.arrays.get("interpolation_loss")
    if t is None or loss is None or not ((t == 0).any() and (t == 1).any()):
        return None
    inside = t[(t >= 0) & (t <= 1)]
    ends = (1 - inside) * loss[t == 0][0] + inside * loss[t == 1][0]
    if not np.isfinite(ends).all():
        return None
    between = Choice("column", {"loss": ends})
    return Series("", values(inside), between, paint="soft", width=1.5, dash="5 4", hover=None)


def _eigenvalues(one: _Drawn) -> Series:
    """Bars with their residuals as whiskers."""
    found = one.run.arrays["eigenvalues"]
    residual = one.run.arrays.get("eigenvalues_residual", np.zeros_like(found))
    low, high = values(found - residual), values(found + residual)
    at, hover = [float(number + 1) for number in range(len(found))], f"{one.head}eigenvalue %{{x}}: %{{y:.5~g}}"
    return Series(one.name, at, values(found), "bars", **one.style, low=low, high=high, hover=hover)


def _density(one: _Drawn, floor: float) -> Series:
    """With one standard error on either side; nothing is drawn below the floor."""
    arrays = one.run.arrays
    kept = evenly(len(arrays["density_grid"]), _MOST)
    grid, value = arrays["density_grid"][kept], arrays["density_value"][kept]
    error = arrays["density_error"][kept] if "density_error" in arrays else np.zeros_like(value)
    low, high = (values(np.fmax(side, floor)) for side in (value - error, value + error))
    y, hover = values(np.where(value > floor, value, np.nan)), f"{one.head}density %{{y:.3~g}}<br>at %{{x:.4~g}}"
    return Series(one.name, values(grid), y, **one.style, low=low, high=high, hover=hover)


def path_note(run: Landscape) -> str | None:
    """How much of a path its plane holds; None where there is no path."""
    part = run.result.trajectory
    if part is None or "trajectory_xy" not in run.arrays:
        return None
    share = words.share(sum(part.variance))
    return f"The plane of the two main axes holds {share} of the squared distances from the last weights."
