"""The settings of `paceline landscape`: one frozen dataclass from which the flags, the record in run.json and the rules
of `--resume` are derived. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from paceline.landscape.choices import BATCH_NORMS, DATA, DIRECTIONS, FORMATS, MEASURES, PLANES, PRECISIONS
from paceline.parallel.placement import parse_workers
from paceline.records.errors import PacelineError, choices
from paceline.records.rundir import RunDir
from paceline.tasks.table import BUILT_IN

LEAST_PROBES = 8


def _result(default: Any, group: str, text: str, value: str = "", flag: str = "") -> Any:
    """A field that decides the numbers: a resumed measurement must have the same.

    Args:
        default: None takes what the help says.
        group: where help lists the flag.
        text: what it does.
        value: what help calls its value.
        flag: its name, where that is not the field's.
    """
    return field(default=default, metadata={"help": text, "group": group, "value": value, "recipe": True, "flag": flag})


def _control(default: Any, group: str, text: str, value: str = "") -> Any:
    """A field that decides how it is carried out."""
    return field(default=default, metadata={"help": text, "group": group, "value": value, "recipe": False})


SUBJECT = "What to measure"
SAMPLES = "Samples and precision"
SLICES = "Surface, line and interpolation"
CURVATURE = "Curvature and sharpness"
OUTPUT = "Workers, resuming and output"


@dataclass(frozen=True)
class LandscapeConfig:
    """All settings of a measurement."""

    target: str = field(
        metadata={"help": "A run directory, or a task, which is measured at its initial weights.", "recipe": True}
    )

    measure: str | None = _result(
        None,
        SUBJECT,
        f"Comma-separated list of: {', '.join(MEASURES)}. [default: surface,eigenvalues,trace; interpolation with "
        "--with]",
        "NAMES",
    )
    other: str | None = _result(
        None, SUBJECT, "Second run of the same task, for the straight line between both and its barrier.", "RUN", "with"
    )
    checkpoint: int | None = _result(None, SUBJECT, "Step of the checkpoint to measure. [default: the newest]", "STEP")
    other_checkpoint: int | None = _result(
        None, SUBJECT, "Step of the checkpoint of the second run. [default: the newest]", "STEP", "with-checkpoint"
    )

    samples: int | None = _result(None, SAMPLES, "Samples for slices. [default: 10000, or all there are]", "N")
    curvature_samples: int = _result(2000, SAMPLES, "Samples for curvature and sharpness.", "N")
    on: str = _result("train", SAMPLES, f"Samples to use: {' or '.join(DATA)}.", "SET")
    chunk: int = _result(
        250,
        SAMPLES,
        "Most samples per forward pass; cut into equal parts (401: 201 + 200). With --batch-norm batch it changes the "
        "result.",
        "N",
    )
    batch_norm: str = _result(
        "batch", SAMPLES, "Batch norm statistics: batch (of each chunk) or saved (the running ones).", "NAME"
    )
    precision: str = _result("fp32", SAMPLES, f"Precision: {' or '.join(PRECISIONS)}.", "NAME")
    seed: int = _result(0, SAMPLES, "Seed of directions, probes, starting vectors, and a task's initial weights.", "N")

    points: int = _result(25, SLICES, "Points along each direction.", "N")
    span: float = _result(1.0, SLICES, "Distance to go in both ways, in lengths of the direction.", "X")
    directions: str = _result(
        "filter",
        SLICES,
        "Scaling of random directions: filter (each filter to its norm) or raw (the whole vector).",
        "NAME",
    )
    plane: str = _result(
        "random", SLICES, "Plane of the surface: random, or pca (the main directions of the run's checkpoints).", "NAME"
    )

    top: int = _result(5, CURVATURE, "Number of eigenvalues.", "N")
    tolerance: float = _result(1e-3, CURVATURE, "Relative residual at which an eigenvalue counts as converged.", "X")
    steps: int = _result(100, CURVATURE, "Maximum Lanczos steps; the density takes at most 60.", "N")
    probes: int = _result(
        100, CURVATURE, "Maximum random vectors for the trace; the density takes a thirtieth of them.", "N"
    )
    epsilon: float = _result(1e-3, CURVATURE, "Size of Keskar's box, epsilon * (|w| + 1).", "X")
    rho: float = _result(0.05, CURVATURE, "Radius of the ball of SAM sharpness.", "X")

    workers: str = _control(
        "auto",
        OUTPUT,
        "Worker processes on this machine: a number, or auto for one per GPU, else one per CPU core.",
        "N",
    )
    resume: str | None = _control(None, OUTPUT, "Resume a stopped measurement from its run directory.", "RUN")
    run_dir: str | None = _control(
        None, OUTPUT, "Use exactly this directory instead of runs/<date>_<time>_landscape-<name>.", "DIR"
    )
    data_dir: str | None = _control(None, OUTPUT, "Directory of the data set. [default: the run's]", "DIR")
    format: str = _control("text", OUTPUT, "text, or json for one JSON object at the end.", "NAME")

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of `MEASURES`, in their order."""
        if self.measure is None:
            asked = {"interpolation"} if self.other is not None else {"surface", "eigenvalues", "trace"}
        else:
            asked = {name.strip() for name in self.measure.split(",") if name.strip()}
        if self.plane == "pca" and "surface" in asked:
            asked.add("trajectory")  # the plane is made from it
        return tuple(name for name in MEASURES if name in asked)

    @property
    def density_probes(self) -> int:
        """Each costs as much as `density_steps` probes of the trace; with many weights few of them are enough."""
        return max(1, round(self.probes / 30))

    @property
    def density_steps(self) -> int:
        """Lanczos steps of each: more show more of the spectrum's end, which `eigenvalues` is for."""
        return min(self.steps, 60)


_NAMES: dict[str, Collection[str]] = {
    "on": DATA,
    "directions": DIRECTIONS,
    "plane": PLANES,
    "batch_norm": BATCH_NORMS,
    "precision": PRECISIONS,
    "format": FORMATS,
}
_AT_LEAST = {
    "samples": 1, "curvature_samples": 1, "points": 2, "top": 1, "probes": LEAST_PROBES, "steps": 1, "seed": 0,
    "chunk": 1, "checkpoint": 0, "other_checkpoint": 0,
}  # fmt: skip
LEAST_BETWEEN = 3
SEEDS = 2**63
"""Seeds are below it, as those of paceline train."""
_ABOVE_ZERO = ("span", "epsilon", "rho")


def is_run(target: str) -> bool:
    """Whether a target is a directory, and no built-in task that a directory happens to be called like."""
    path = Path(target)
    return path.is_dir() and (target not in BUILT_IN or RunDir(path).exists())


def flag_of(name: str) -> str:
    """How a setting is typed."""
    if name == "target":
        return "TARGET"
    own = next((f.metadata.get("flag") for f in dataclasses.fields(LandscapeConfig) if f.name == name), "")
    return "--" + (own or name).replace("_", "-")


def check(config: LandscapeConfig) -> None:
    """Refuse what cannot be right, with the legal values.

    Raises:
        PacelineError: naming the flag.
    """
    for name, legal in _NAMES.items():
        if getattr(config, name) not in legal:
            raise PacelineError(
                f"{flag_of(name)} {getattr(config, name)} is unknown", hint=f"legal values: {choices(legal)}"
            )
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise PacelineError(f"{flag_of(name)} {value} is out of range", hint=f"legal: {least} <= value")
    if config.seed >= SEEDS:
        raise PacelineError(f"--seed {config.seed} is out of range", hint=f"legal: 0 <= value < {SEEDS}")
    for name in _ABOVE_ZERO:
        value = getattr(config, name)
        if not (math.isfinite(value) and value > 0):
            raise PacelineError(f"{flag_of(name)} {value:g} is out of range", hint="legal: 0 < value")
    if not 0 < config.tolerance < 1:
        raise PacelineError(f"--tolerance {config.tolerance:g} is out of range", hint="legal: 0 < value < 1")
    parse_workers(config.workers)
    _check_measures(config)


def _check_measures(config: LandscapeConfig) -> None:
    asked = [name.strip() for name in (config.measure or "").split(",") if name.strip()]
    for name in asked:
        if name not in MEASURES:
            raise PacelineError(f"--measure {name} is unknown", hint=f"legal values: {choices(MEASURES)}")
    if not config.measures:
        raise PacelineError("--measure names nothing", hint=f"legal values: {choices(MEASURES)}")
    if ("interpolation" in config.measures) != (config.other is not None):
        raise PacelineError(
            "--measure interpolation and --with belong together",
            why="an interpolation goes from one run to another",
            hint="paceline landscape RUN --with RUN2",
        )
    if "interpolation" in config.measures and config.points < LEAST_BETWEEN:
        raise PacelineError(
            f"--points {config.points} is out of range for an interpolation",
            why="without a point between the two runs there is no barrier to see",
            hint=f"legal: {LEAST_BETWEEN} <= value",
        )
    if config.other_checkpoint is not None and config.other is None:
        raise PacelineError("--with-checkpoint needs --with", hint="paceline landscape RUN --with RUN2")
    if config.plane == "pca" and "surface" not in config.measures:
        raise PacelineError(
            "--plane pca is of the surface, which is not measured", hint="--measure surface, or leave --plane out"
        )


def to_dict(config: LandscapeConfig) -> dict[str, Any]:
    """For run.json."""
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, Any]) -> LandscapeConfig:
    """From run.json; settings that this version does not know are refused, since they may have decided the result.

    Raises:
        PacelineError: unknown settings, or values of another type.
    """
    unknown = sorted(set(values) - {f.name for f in dataclasses.fields(LandscapeConfig)})
    try:
        if unknown:
            raise msgspec.ValidationError(f"unknown to this version: {', '.join(unknown)}")
        return msgspec.convert(dict(values), LandscapeConfig)
    except msgspec.ValidationError as error:
        raise PacelineError(
            "the settings of the measurement cannot be read",
            why=str(error),
            hint="use the version of Paceline that wrote them (see versions in run.json), or start a new one",
        ) from error


def for_resume(stored: LandscapeConfig, given: Mapping[str, Any]) -> LandscapeConfig:
    """The stored settings with what the user gave anew.

    Raises:
        PacelineError: a setting that decides the numbers was changed.
    """
    for f in dataclasses.fields(LandscapeConfig):
        if f.name in given and f.metadata["recipe"] and given[f.name] != getattr(stored, f.name):
            raise PacelineError(
                f"the measurement to be resumed has {flag_of(f.name)} {getattr(stored, f.name)}, not {given[f.name]}",
                why="a resumed measurement goes on with the settings that decide its numbers",
                hint=f"leave {flag_of(f.name)} out, or start a new one with another --run-dir",
            )
    return dataclasses.replace(stored, **given)
