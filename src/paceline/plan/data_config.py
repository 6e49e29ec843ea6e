"""The settings of `paceline plan data`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from paceline.parallel.placement import parse_workers
from paceline.plan.compute import Device
from paceline.records.errors import PacelineError
from paceline.records.target import Target, parse_target
from paceline.settings.declare import VerbSettings, argument, control, format_setting, run_dir_setting, setting
from paceline.settings.legal import ABOVE_ZERO, NOT_NEGATIVE, PER_DEVICE
from paceline.tasks.names import check_task_name
from paceline.tasks.targets import check_target

LENGTHS = ("steps", "epochs")
LEAST_FRACTIONS = 4
"""Three numbers are fitted, and a fourth size has to show whether the formula holds."""


@dataclass(frozen=True)
class DataConfig(VerbSettings):
    """All settings."""

    noun = "plan"

    task: str = argument("A built-in task, or a Python file with a function task().")

    target: str | None = control(
        None,
        "Goals whose needed samples are predicted, for example accuracy=0.95,accuracy=0.97.",
        value="METRIC=VALUE,...",
        group="Question",
    )
    metric: str | None = control(
        None,
        "Metric to extrapolate; for accuracy its error. [default: the target's, else accuracy or loss]",
        value="NAME",
    )

    fractions: str = setting(
        "1/16,1/8,1/4,1/2,1",
        "Parts of the training set to train on: 4 or more, as fractions or decimals.",
        value="X,X,...",
        group="Trainings",
    )
    seeds: int = setting(
        3, "Trainings per size, with seeds 0, 1, 2 ... for other weights and other samples.", ABOVE_ZERO
    )
    length: str = setting(
        "steps",
        "Length of the trainings: steps (every size as many steps as the largest takes in --epochs) "
        "or epochs (every size --epochs).",
        LENGTHS,
    )
    epochs: int | None = setting(None, "Passes of the largest size over its samples. [default: the task's]", ABOVE_ZERO)
    global_batch: int | None = setting(None, "Samples per optimizer step. [default: the task's]", ABOVE_ZERO)
    lr: float | None = setting(None, "Peak learning rate. [default: the task's]", ABOVE_ZERO)
    train_flags: str | None = setting(
        None, "Further flags of paceline train in one string, for example '--optimizer adamw'.", value="FLAGS"
    )
    holdout: int = setting(
        0, "Keep back so many training samples, and measure on them instead of the evaluation set.", NOT_NEGATIVE
    )
    workers: str = control("auto", f"Worker processes of each training: {PER_DEVICE}", parse_workers, value="N")
    data_dir: str | None = control(None, "Directory of the data set.", value="DIR")

    peak: float | None = control(
        None, "Peak TFLOP/s of one device, in the precision of the trainings.", ABOVE_ZERO, group="Cost"
    )
    utilisation: float | None = control(
        None, "Fraction of the peak that a training reaches, measured by you: 0.4 or 40%.", share=True
    )
    price: float | None = control(None, "Price of one device for an hour.", ABOVE_ZERO)

    resume: str | None = control(
        None, "Resume a stopped plan from its run directory.", value="RUN", group="Resuming and output"
    )
    run_dir: str | None = run_dir_setting("plan-data-<task>")
    format: str = format_setting()

    @property
    def parts(self) -> list[Fraction]:
        """Of the training set, ascending.

        Raises:
            PacelineError: one is no number above 0 and up to 1, or they are too few.
        """
        found = set()
        for text in self.fractions.split(","):
            try:
                part = Fraction(text.strip())
            except (ValueError, ZeroDivisionError):
                part = Fraction(0)
            if not 0 < part <= 1:
                raise PacelineError(
                    f"--fractions {self.fractions} holds {text.strip() or 'nothing'}",
                    hint="parts of the training set above 0 and up to 1: 1/16,1/8,1/4,1/2,1",
                )
            found.add(part)
        if len(found) < LEAST_FRACTIONS:
            raise PacelineError(
                f"--fractions {self.fractions} are too few for a learning curve",
                why="three numbers are fitted, and a fourth size has to show whether the formula holds",
                hint=f"{LEAST_FRACTIONS} or more; with 5 the largest can be held out, to check a prediction",
            )
        return sorted(found)

    @property
    def targets(self) -> list[Target]:
        """Of --target, in their order."""
        return [parse_target(text) for text in self.target.split(",")] if self.target is not None else []

    @property
    def asked_metric(self) -> str | None:
        """Of --metric, or of the targets; None where neither was given."""
        if self.metric is not None:
            return self.metric
        return self.targets[0].metric if self.targets else None

    def device(self, precision: str) -> Device | None:
        """On what the computing is paid for, in the trainings' precision; None without a peak."""
        if self.peak is None or self.utilisation is None:
            return None
        name = f"{self.peak:g} TFLOP/s in {precision}, of which {100 * self.utilisation:g} % are reached"
        return Device(name, 1e12 * self.peak, precision, self.utilisation, self.price)


def check(config: DataConfig) -> None:
    """Refuse what cannot be right.

    Raises:
        PacelineError: naming the flag.
    """
    check_task_name(config.task)
    config.check_fields()
    _ = config.parts
    _check_targets(config)
    _check_device(config)


def _check_targets(config: DataConfig) -> None:
    for target in config.targets:
        if target.metric != config.asked_metric:
            raise PacelineError(
                f"--target {target.metric}={target.value:g} is not of the metric {config.asked_metric}",
                why="a learning curve is of one metric",
                hint=f"a plan of its own, with --metric {target.metric}; --resume trains nothing anew for it",
            )
        most = 1.0 if target.metric == "accuracy" else float("inf")
        if not 0 < target.value < most:
            legal = "0 < value < 1" if most == 1.0 else "0 < value"
            meant = f"did you mean accuracy={target.value / 100:.4g}? " if most == 1.0 and target.value >= 2 else ""
            raise PacelineError(
                f"--target {target.metric}={target.value:g} is out of range", hint=f"{meant}legal: {legal}"
            )
        check_target(config.task, target)


def _check_device(config: DataConfig) -> None:
    if (config.peak is None) != (config.utilisation is None):
        raise PacelineError(
            "--peak and --utilisation belong together",
            why="hardly any training reaches the peak of a device",
            hint="the utilisation that you have measured; 0.3 to 0.5 is usual for large models",
        )
    if config.price is not None and config.peak is None:
        raise PacelineError("--price needs to know how fast a device is", hint="--peak with --utilisation")
