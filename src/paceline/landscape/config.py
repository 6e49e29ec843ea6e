"""The settings of `paceline landscape`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.landscape.choices import BATCH_NORMS, DATA, DIRECTIONS, MEASURES, PLANES, PRECISIONS
from paceline.parallel.placement import parse_workers
from paceline.records.errors import PacelineError, choices
from paceline.settings.declare import VerbSettings, argument, control, format_setting, run_dir_setting, setting
from paceline.settings.legal import ABOVE_ZERO, COUNT, NOT_NEGATIVE, PER_DEVICE, SEED, Range, one_of

LEAST_BETWEEN = 3
"""Points of an interpolation: without one between the two runs there is no barrier."""


@dataclass(frozen=True)
class LandscapeConfig(VerbSettings):
    """All settings of a measurement."""

    noun = "measurement"

    target: str = argument("A run directory, or a task, which is measured at its initial weights.")

    measure: str | None = setting(
        None,
        f"Comma-separated list of: {choices(MEASURES)}. [default: surface,eigenvalues,trace; interpolation with "
        "--with]",
        value="NAMES",
        group="What to measure",
    )
    other: str | None = setting(
        None,
        "Second run of the same task, for the straight line between both and its barrier.",
        value="RUN",
        flag="with",
    )
    checkpoint: int | None = setting(
        None, "Step of the checkpoint to measure. [default: the newest]", NOT_NEGATIVE, value="STEP"
    )
    other_checkpoint: int | None = setting(
        None,
        "Step of the checkpoint of the second run. [default: the newest]",
        NOT_NEGATIVE,
        value="STEP",
        flag="with-checkpoint",
    )

    samples: int | None = setting(
        None, "Samples for slices. [default: 10000, or all there are]", COUNT, group="Samples and precision"
    )
    curvature_samples: int = setting(2000, "Samples for curvature and sharpness.", COUNT)
    on: str = setting("train", "Samples to use: train or eval.", DATA, value="SET")
    chunk: int = setting(
        250,
        "Most samples per forward pass; cut into equal parts (401: 201 + 200). With --batch-norm batch it changes the "
        "result.",
        COUNT,
    )
    batch_norm: str = setting(
        "batch", "Batch norm statistics: batch (of each chunk) or saved (the running ones).", BATCH_NORMS
    )
    precision: str = setting("fp32", "Precision: fp32 or fp64.", PRECISIONS)
    seed: int = setting(0, "Seed of directions, probes, starting vectors, and a task's initial weights.", SEED)

    points: int = setting(25, "Points along each direction.", Range(2), group="Surface, line and interpolation")
    span: float = setting(1.0, "Distance to go in both ways, in lengths of the direction.", ABOVE_ZERO)
    directions: str = setting(
        "filter",
        "Scaling of random directions: filter (each filter to its norm) or raw (the whole vector).",
        DIRECTIONS,
    )
    plane: str = setting(
        "random", "Plane of the surface: random, or pca (the main directions of the run's checkpoints).", PLANES
    )

    top: int = setting(5, "Number of eigenvalues.", COUNT, group="Curvature and sharpness")
    tolerance: float = setting(
        1e-3, "Relative residual at which an eigenvalue counts as converged.", Range(0, 1, above=True)
    )
    steps: int = setting(100, "Maximum Lanczos steps; the density takes at most 60.", COUNT)
    probes: int = setting(100, "Maximum random vectors for the trace; the density takes a thirtieth of them.", Range(8))
    epsilon: float = setting(1e-3, "Size of Keskar's box, epsilon * (|w| + 1).", ABOVE_ZERO)
    rho: float = setting(0.05, "Radius of the ball of SAM sharpness.", ABOVE_ZERO)

    workers: str = control(
        "auto",
        f"Worker processes on this machine: {PER_DEVICE}",
        parse_workers,
        value="N",
        group="Workers, resuming and output",
    )
    resume: str | None = control(None, "Resume a stopped measurement from its run directory.", value="RUN")
    run_dir: str | None = run_dir_setting("landscape-<name>")
    data_dir: str | None = control(None, "Directory of the data set. [default: the run's]", value="DIR")
    format: str = format_setting()

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


def check(config: LandscapeConfig) -> None:
    """Refuse what cannot be right, with the legal values.

    Raises:
        PacelineError: naming the flag.
    """
    config.check_fields()
    _check_measures(config)


def _check_measures(config: LandscapeConfig) -> None:
    asked = [name.strip() for name in (config.measure or "").split(",") if name.strip()]
    for name in asked:
        one_of("--measure", name, MEASURES)
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
