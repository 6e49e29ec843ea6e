"""What each name of `--measure` does: a function from a session to an outcome, all ranks together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from paceline.checkpoint.state import load_model
from paceline.curvature.fixed_loss import Value
from paceline.landscape import interpolate, trajectory
from paceline.landscape.between_runs import interpolation
from paceline.landscape.bounds import keskar_sharpness, sam_sharpness
from paceline.landscape.directions import IN_WORDS, Axes, random_direction
from paceline.landscape.ends import checkpoints_of_path
from paceline.landscape.kept_parts import Entries, save_array, save_rows
from paceline.landscape.session import Outcome, Session, as_array, shown
from paceline.landscape.slices import Floats, Grid, along, coordinates, evaluate
from paceline.landscape.spectrum import density, eigenvalues, trace
from paceline.landscape.subject import flat_weights
from paceline.records.errors import PacelineError
from paceline.records.landscape import Line, Surface, Trajectory, finites


def surface(session: Session) -> Outcome:
    """Loss and metrics over a plane."""
    config = session.config
    if config.plane == "pca":
        path = pca_path(session)
        axes = Axes(path.folder / "plane.npy")
        grid = Grid(*(trajectory.window(path.xy[:, axis], config.span, config.points) for axis in (0, 1)))
    else:
        axes = random_axes(session)
        line = coordinates(config.points, config.span)
        grid = Grid(line, line)
    values = evaluate(session.work, "surface", len(grid), along(session.slices, axes.step, grid))
    words = IN_WORDS["pca" if config.plane == "pca" else config.directions]
    result = Surface(
        plane=config.plane,
        directions=words,
        points=[len(grid.x), len(grid.y)],
        lowest=_extreme(values.loss, np.nanmin),
        highest=_extreme(values.loss, np.nanmax),
        failed=int((~np.isfinite(values.loss)).sum()),
    )
    arrays = {"surface_x": grid.x, "surface_y": grid.y, **values.arrays("surface", grid.shape)}
    warnings = [f"surface: the loss is no finite number at {result.failed} points"] if result.failed else []
    if not axes.spans(1):
        warnings.append("surface: the run went along a straight line, so nothing changes across it")
    summary = f"{len(grid.x)} x {len(grid.y)} points, loss {shown(result.lowest)} to {shown(result.highest)}"
    return Outcome(result, arrays, summary, warnings)


def line(session: Session) -> Outcome:
    """Loss and metrics along the first random direction."""
    config = session.config
    where = coordinates(config.points, config.span)
    axes = random_axes(session)
    values = evaluate(session.work, "line", len(where), along(session.slices, axes.step, where[:, None]))
    words = IN_WORDS[config.directions]
    result = Line(directions=words, points=where.tolist(), loss=finites(values.loss))
    arrays = {"line_t": where, **values.arrays("line")}
    low, high = _extreme(values.loss, np.nanmin), _extreme(values.loss, np.nanmax)
    return Outcome(result, arrays, f"{len(where)} points, loss {shown(low)} to {shown(high)}")


def random_axes(session: Session) -> Axes:
    """Two directions, made by rank 0 and kept in a file that every rank maps."""
    config, path = session.config, session.work.parts / "directions.npy"

    def make() -> None:
        if path.exists():
            return
        weights, layout = session.slices.point(), session.slices.layout
        rows = [
            random_direction(weights, layout, kind=config.directions, seed=config.seed, number=number).cpu().numpy()
            for number in (0, 1)
        ]
        save_array(path, np.stack(rows))

    session.work.from_rank_zero(make)
    return Axes(path)


class _Path:
    def __init__(self, folder: Path, steps: list[int], xy: Floats, variance: Floats) -> None:
        self.folder, self.steps, self.xy, self.variance = folder, steps, xy, variance


def pca_path(session: Session) -> _Path:
    """The path of the run and its plane, made by rank 0 and kept.

    Raises:
        PacelineError: too few checkpoints.
    """
    folder = session.work.parts / "path"
    run, last = session.subject.run, session.subject.step
    if run is None or last is None:
        raise PacelineError(
            "a task's fresh weights have no path", hint="--plane pca and --measure trajectory need a run"
        )

    def make() -> tuple[list[int], list[list[float]], list[float]]:
        kept = Entries.read(folder / "path.jsonl", session.work.note)
        if "path" in kept:
            return kept["path"][0], kept["path"][1], kept["path"][2]
        found = checkpoints_of_path(run, last, session.config)
        like, layout = session.slices.point().cpu(), session.slices.layout
        rows = (flat_weights(load_model(path), layout, like, path).numpy() for _, path in found)
        save_rows(folder / "weights.npy", rows, len(found))
        made = trajectory.principal_plane(np.load(folder / "weights.npy", mmap_mode="r"))
        save_array(folder / "plane.npy", made.axes)
        value = ([step for step, _ in found], made.xy.tolist(), made.variance.tolist())
        Entries(folder / "path.jsonl", {}, writes=True).add("path", value)
        return value

    steps, xy, variance = session.work.from_rank_zero(make)
    return _Path(folder, steps, as_array(xy), as_array(variance))


def path_of(session: Session) -> Outcome:
    """The path with the loss at each checkpoint."""
    path = pca_path(session)
    weights = np.load(path.folder / "weights.npy", mmap_mode="r")

    def at(index: int) -> Value:
        return session.slices.value_alone(interpolate.move(session.slices.point(), weights[index], 1.0))

    values = evaluate(session.work, "trajectory", len(path.steps), at)
    shares = path.variance[:2].tolist()
    result = Trajectory(steps=path.steps, variance=shares, loss=finites(values.loss))
    arrays = {
        "trajectory_step": as_array(path.steps),
        "trajectory_xy": path.xy,
        "trajectory_variance": path.variance[:10],
        **values.arrays("trajectory"),
    }
    return Outcome(
        result, arrays, f"{len(path.steps)} checkpoints; two axes hold {100 * sum(shares):.1f} % of the variance"
    )


def _extreme(values: Floats, choose: Callable[[Floats], float]) -> float | None:
    kept = values[np.isfinite(values)]
    return float(choose(kept)) if len(kept) else None


TAKE: dict[str, Callable[[Session], Outcome]] = {
    "trajectory": path_of,
    "surface": surface,
    "line": line,
    "interpolation": interpolation,
    "eigenvalues": eigenvalues,
    "trace": trace,
    "density": density,
    "keskar": keskar_sharpness,
    "sam": sam_sharpness,
}
