"""Written-down measurements of `paceline landscape`: run directories with made-up but consistent numbers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paceline.records.landscape import (
    Density,
    Eigenvalues,
    Interpolation,
    Keskar,
    LandscapeResult,
    Line,
    Sam,
    Surface,
    Trace,
    Trajectory,
    arrays_path,
    write_result,
)
from paceline.records.rundir import RunDir, write_atomic, write_info
from paceline.records.schema import RunInfo, Topology

WARNING = "Plain sharpness is not a property of what a network computes."
FILTERS = "random, each filter's part as long as the filter"


def info(**changes: Any) -> RunInfo:
    """run.json; `changes` replace fields."""
    base: dict[str, Any] = {
        "schema": 1,
        "verb": "landscape",
        "name": "digits",
        "command": ["paceline", "landscape", "runs/one"],
        "started_at": "2026-03-01T09:30:00+00:00",
        "versions": {"paceline": "0.1.0"},
        "config": {},
        "topology": Topology(
            world=2,
            nodes=1,
            backend="gloo",
            device="cpu",
            device_name="a CPU",
            threads_per_rank=1,
            hostname="bench-1",
        ),
    }
    return RunInfo(**(base | changes))


def bare(**changes: Any) -> LandscapeResult:
    """A result without any measure; `changes` replace fields."""
    base: dict[str, Any] = {
        "target": "runs/one",
        "task": "digits",
        "checkpoint": 1200,
        "parameters": 9610,
        "data": "train",
        "samples": 1000,
        "curvature_samples": 200,
        "chunk": 250,
        "batch_norm": "the model has no batch norm",
        "precision": "fp32",
        "loss": 0.125,
        "metrics": {"accuracy": 0.9375},
        "curvature_loss": 0.13,
        "gradient_norm": 0.015,
        "warnings": [WARNING],
        "seconds": {"surface": 61.0},
        "world": 2,
    }
    return LandscapeResult(**(base | changes))


def surface_arrays(plane: str = "random", points: int = 11) -> dict[str, Any]:
    """A valley 0.1 + x^2 + 4 y^2 / 9 with its minimum at the origin, and an accuracy that falls with it."""
    x = np.linspace(-3, 1, points) if plane == "pca" else np.linspace(-1, 1, points)
    y = np.linspace(-1, 2, points - 2)
    loss = 0.1 + x[None, :] ** 2 + 4 * y[:, None] ** 2 / 9
    return {"surface_x": x, "surface_y": y, "surface_loss": loss, "surface_accuracy": np.exp(-loss)}


def path_arrays() -> dict[str, Any]:
    """Four checkpoints on their way to the origin, inside the surface of the plane pca."""
    return {
        "trajectory_step": np.array([100.0, 200, 300, 400]),
        "trajectory_xy": np.array([[-2.5, 0], [-1.5, 1.25], [-0.5, 1], [0, 0]]),
        "trajectory_loss": np.array([6.5, 3, 0.75, 0.125]),
        "trajectory_variance": np.array([0.75, 0.2, 0.05]),
    }


def everything(plane: str = "random") -> tuple[LandscapeResult, dict[str, Any]]:
    """Every measure there is."""
    t = np.arange(-1, 6) / 4
    between = 0.2 + 0.1 * t + 3 * np.clip(t * (1 - t), 0, None)
    grid = np.linspace(-2, 12, 57)
    density = np.exp(-((grid / 0.4) ** 2)) + 1e-4 * np.exp(-(((grid - 10) / 0.4) ** 2))
    line = np.linspace(-1, 1, 5)
    arrays = surface_arrays(plane) | {
        "line_t": line,
        "line_loss": 0.125 + 8 * line**2,
        "interpolation_t": t,
        "interpolation_loss": between,
        "eigenvalues": np.array([10.0, 4.0]),
        "eigenvalues_residual": np.array([0.004, 0.25]),
        "density_grid": grid,
        "density_value": density,
        "density_error": 0.1 * density,
    }
    surface = Surface(plane=plane, directions=FILTERS, points=[11, 9], lowest=0.1, highest=10.0, failed=0)
    trajectory = None
    if plane == "pca":
        arrays |= path_arrays()
        trajectory = Trajectory(steps=[100, 200, 300, 400], variance=[0.75, 0.2], loss=[6.5, 3.0, 0.75, 0.125])
    result = bare(
        surface=surface,
        trajectory=trajectory,
        line=Line(directions=FILTERS, points=[], loss=[]),
        interpolation=Interpolation(
            other="runs/two",
            other_checkpoint=900,
            points=[],
            loss=[],
            ends=[0.2, 0.3],
            barrier=0.75,
            barrier_at=0.5,
            distance=14.25,
        ),
        eigenvalues=Eigenvalues(
            values=[10.0, 4.0],
            residuals=[0.004, 0.25],
            converged=False,
            each_converged=[True, False],
            steps=30,
            note="1 of 2 eigenvalues converged in 30 steps; the largest residual is 0.25",
            weighted_values=[2.5],
            weighted_residuals=[0.001],
            weighted_converged=True,
            weighted_steps=12,
            weighted_note="",
        ),
        trace=Trace(
            value=123.5,
            error=2.5,
            probes=40,
            converged=True,
            weighted_value=17.25,
            weighted_error=None,
            weighted_probes=40,
            weighted_converged=True,
        ),
        density=Density(grid=[], density=[], bandwidth=0.4, probes=5, steps=60, lowest=-1.5, highest=10.25),
        keskar=Keskar(
            epsilon=1e-3,
            value=3.125,
            starts=[3.125, 3.0, 2.5],
            subspace_value=0.5,
            subspace_starts=[0.5],
            subspace_size=100,
        ),
        sam=Sam(rho=0.05, value=0.0125, starts=[0.0125, 0.012], adaptive_value=0.002, adaptive_starts=[0.002]),
    )
    return result, arrays


def write(path: Path, result: LandscapeResult, arrays: dict[str, Any], about: RunInfo | None = None) -> Path:
    """A finished measurement's run directory."""
    run = RunDir(path)
    write_info(run, about or info())
    write_result(run, result)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_atomic(arrays_path(run), buffer.getvalue())
    return run.path


def only(measure: str, plane: str = "random") -> tuple[LandscapeResult, dict[str, Any]]:
    """One measure and nothing else; `trajectory` is made with plane pca, the path without the surface."""
    result, arrays = everything("pca" if measure == "trajectory" else plane)
    keep = {name: array for name, array in arrays.items() if name.startswith(measure.rstrip("s"))}
    return msgspec.structs.replace(bare(), **{measure: getattr(result, measure)}), keep
