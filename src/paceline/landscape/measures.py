"""What each name of `--measure` does: a function from a session to an outcome, all ranks together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.curvature.fixed_loss import FixedLoss, Value
from paceline.landscape.bounds import keskar_sharpness, sam_sharpness
from paceline.landscape.directions import IN_WORDS, random_direction, step
from paceline.landscape.interpolation import interpolation
from paceline.landscape.kept_parts import mapped, save_rows
from paceline.landscape.session import Outcome, Session, shown
from paceline.landscape.slices import Floats, coordinates, evaluate, grid
from paceline.landscape.spectrum import density, eigenvalues, trace
from paceline.landscape.trajectory import run_path, trajectory, window
from paceline.parallel import agree
from paceline.records.landscape import Line, Surface, finites


def surface(session: Session) -> Outcome:
    """Loss and metrics over a plane."""
    config = session.config
    if config.plane == "pca":
        path = run_path(session)
        axes = path.axes
        x, y = (window(path.xy[:, axis], config.span, config.points) for axis in (0, 1))
    else:
        axes = random_axes(session)
        x = y = coordinates(config.points, config.span)
    points = grid(x, y)
    values = evaluate(session.ranks, "surface", len(points), along(session.slices, axes, points))
    words = IN_WORDS["pca" if config.plane == "pca" else config.directions]
    result = Surface(
        plane=config.plane,
        directions=words,
        points=[len(x), len(y)],
        lowest=_extreme(values.loss, np.nanmin),
        highest=_extreme(values.loss, np.nanmax),
        failed=int((~np.isfinite(values.loss)).sum()),
    )
    arrays = {"surface_x": x, "surface_y": y, **values.arrays("surface", (len(y), len(x)))}
    warnings = [f"surface: the loss is no finite number at {result.failed} points"] if result.failed else []
    if not axes[1].any():
        warnings.append("surface: the run went along a straight line, so nothing changes across it")
    summary = f"{len(x)} x {len(y)} points, loss {shown(result.lowest)} to {shown(result.highest)}"
    return Outcome(result, arrays, summary, warnings)


def line(session: Session) -> Outcome:
    """Loss and metrics along the first random direction."""
    config = session.config
    where = coordinates(config.points, config.span)
    axes = random_axes(session)
    values = evaluate(session.ranks, "line", len(where), along(session.slices, axes, where[:, None]))
    words = IN_WORDS[config.directions]
    result = Line(directions=words, points=where.tolist(), loss=finites(values.loss))
    arrays = {"line_t": where, **values.arrays("line")}
    low, high = _extreme(values.loss, np.nanmin), _extreme(values.loss, np.nanmax)
    return Outcome(result, arrays, f"{len(where)} points, loss {shown(low)} to {shown(high)}")


def along(loss: FixedLoss, axes: NDArray[Any], where: Floats) -> Callable[[int], Value]:
    """`at` for `evaluate`: the present weights moved by where[i] (k,) along `axes` (k, P).

    Two copies of the weights are held at a time: the point, and the one that the loss puts into the model.
    """
    return lambda index: loss.value_alone(step(loss.point(), axes, where[index]))


def random_axes(session: Session) -> NDArray[Any]:
    """Two directions, made by rank 0 and kept in a file that every rank maps."""
    config, path = session.config, session.ranks.parts / "directions.npy"

    def make() -> None:
        if path.exists():
            return
        weights, layout = session.slices.point(), session.slices.layout
        rows = (
            random_direction(weights, layout, kind=config.directions, seed=config.seed, number=number).cpu().numpy()
            for number in (0, 1)
        )
        save_rows(path, rows, 2)

    agree.from_rank_zero(make)
    return mapped(path)


def _extreme(values: Floats, choose: Callable[[Floats], float]) -> float | None:
    kept = values[np.isfinite(values)]
    return float(choose(kept)) if len(kept) else None


TAKE: dict[str, Callable[[Session], Outcome]] = {
    "trajectory": trajectory,
    "surface": surface,
    "line": line,
    "interpolation": interpolation,
    "eigenvalues": eigenvalues,
    "trace": trace,
    "density": density,
    "keskar": keskar_sharpness,
    "sam": sam_sharpness,
}
