"""What `paceline landscape` leaves in a run directory, as types.

    result.json    one `LandscapeResult`: every number, its error, and the curves along a line
    landscape.npz  arrays by the names in docs/reference/landscape.md; a measure that was not taken has none

What was not measured is None, never a guess. JSON has no NaN: a value that is no finite number stands there as null.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, decode_record, write_atomic

SCHEMA = 1


class Eigenvalues(msgspec.Struct, frozen=True, kw_only=True):
    """The largest eigenvalues, in the order of numbers."""

    values: list[float]
    residuals: list[float]
    """|H u - value u|: an eigenvalue lies within it of the value."""
    converged: bool
    """All of them, and none is missing."""
    each_converged: list[bool] = []
    """For each value; empty in older results."""
    steps: int
    """Products with the Hessian."""
    note: str
    weighted_values: list[float]
    """Of D H D, D = diag(|weights|): curvature by relative changes of the weights."""
    weighted_residuals: list[float]
    weighted_converged: bool
    weighted_steps: int
    weighted_note: str


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Hutchinson's estimate with its error."""

    value: float
    error: float | None
    """Standard error."""
    half_width: float | None = None
    """Half width of the 95 % interval, which is valid at every stopping time; None in older results."""
    probes: int
    converged: bool
    """Whether the error is as small as was asked for."""
    weighted_value: float
    """sum_i w_i^2 H_ii."""
    weighted_error: float | None
    weighted_half_width: float | None = None
    weighted_probes: int
    weighted_converged: bool


class Density(msgspec.Struct, frozen=True, kw_only=True):
    """How the eigenvalues are distributed, by stochastic Lanczos quadrature."""

    grid: list[float]
    density: list[float]
    bandwidth: float
    probes: int
    steps: int
    """Lanczos steps of the longest probe: fewer than asked for if the network has fewer weights."""
    lowest: float
    """The smallest node, near the smallest eigenvalue."""
    highest: float


class Keskar(msgspec.Struct, frozen=True, kw_only=True):
    """100 (max f - f) / (1 + f) in a small box: lower bounds, since a search finds the maximum only if it is lucky."""

    epsilon: float
    value: float | None
    """A = identity."""
    starts: list[float | None]
    subspace_value: float | None
    """In a random subspace."""
    subspace_starts: list[float | None]
    subspace_size: int


class Sam(msgspec.Struct, frozen=True, kw_only=True):
    """max L(w + e) - L(w) over |e| <= rho, and over |e / |w|| <= rho: lower bounds."""

    rho: float
    value: float | None
    starts: list[float | None]
    adaptive_value: float | None
    adaptive_starts: list[float | None]


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """A plane; its values are in landscape.npz."""

    plane: str
    directions: str
    """In words."""
    points: list[int]
    lowest: float | None
    highest: float | None
    failed: int
    """Points whose loss is no finite number."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Along the first direction."""

    directions: str
    points: list[float]
    loss: list[float | None]


class Interpolation(msgspec.Struct, frozen=True, kw_only=True):
    """On the straight line between two runs."""

    other: str
    other_checkpoint: int | None
    other_weights: str = ""
    """As `weights` of the result; empty in records from before it was written down."""
    points: list[float]
    loss: list[float | None]
    ends: list[float | None]
    barrier: float | None
    """max over 0 <= t <= 1 of the loss less the straight line between the ends' losses."""
    barrier_at: float | None
    distance: float
    """Between the two runs' weights, trained and frozen."""


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """A run's path, seen in the plane of its two main axes."""

    steps: list[int]
    variance: list[float]
    """Shares of the two axes in the sum of squared distances from the last weights."""
    loss: list[float | None]


class LandscapeResult(msgspec.Struct, frozen=True, kw_only=True):
    """result.json."""

    schema: int = SCHEMA
    target: str
    """The run or the task."""
    task: str
    checkpoint: int | None
    """The step of the weights; None for fresh ones."""
    weights: str = ""
    """Their fingerprint: sha256 of the checkpoint's model.safetensors, as its manifest has it; of fresh weights, of
    their names and bits. Empty in records from before it was written down."""
    parameters: int
    data: str
    """`train` or `eval`."""
    samples: int
    curvature_samples: int
    chunk: int
    """Samples at once, at most."""
    chunks: dict[str, str] = {}
    """How the samples were cut, in words: of `slices` and of `curvature`. Empty in older results."""
    batch_norm: str
    """In words."""
    precision: str
    loss: float | None
    """At the weights, on `samples` samples."""
    metrics: dict[str, float | None]
    curvature_loss: float | None
    """At the weights, on `curvature_samples` samples; None where no curvature was asked for."""
    gradient_norm: float | None
    """There, of the mean loss: curvature describes a minimum only where it is small."""
    warnings: list[str]
    seconds: dict[str, float]
    """By measure, of this session."""
    world: int
    eigenvalues: Eigenvalues | None = None
    trace: Trace | None = None
    density: Density | None = None
    keskar: Keskar | None = None
    sam: Sam | None = None
    surface: Surface | None = None
    line: Line | None = None
    interpolation: Interpolation | None = None
    trajectory: Trajectory | None = None


def finite(value: float | None) -> float | None:
    """The value, None when it is no finite number."""
    return value if value is not None and math.isfinite(value) else None


def finites(values: Iterable[float]) -> list[float | None]:
    """Each of them."""
    return [finite(float(value)) for value in values]


def result_path(run: RunDir) -> Path:
    """result.json."""
    return run.path / "result.json"


def arrays_path(run: RunDir) -> Path:
    """landscape.npz."""
    return run.path / "landscape.npz"


def write_result(run: RunDir, result: LandscapeResult) -> None:
    """Write result.json whole or not at all."""
    write_atomic(result_path(run), msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def read_result(run: RunDir) -> LandscapeResult:
    """Read result.json.

    Raises:
        PacelineError: there is none, it is damaged, or of a newer schema.
    """
    path = result_path(run)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise PacelineError(
            f"{run.path} has no result yet",
            why="the measurement was stopped before its end",
            hint=f"paceline landscape --resume {shlex.quote(str(run.path))}",
        ) from None
    except OSError as error:
        raise PacelineError(f"{path} cannot be read", why=str(error)) from error
    return decode_record(path, raw, LandscapeResult, schema=SCHEMA)
