"""The settings of `paceline plan data`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from paceline.parallel.placement import parse_workers
from paceline.plan.choices import check_format, positive
from paceline.plan.compute import Device
from paceline.records.errors import PacelineError, choices
from paceline.records.target import Target, parse_target
from paceline.tasks.names import check_task_name
from paceline.tasks.targets import check_target

LENGTHS = {
    "steps": "every size takes as many steps as the largest takes in --epochs",
    "epochs": "every size takes --epochs, so that small ones have few steps",
}
LEAST_FRACTIONS = 4
"""Three numbers are fitted, and a fourth size has to show whether the formula holds."""


def _option(default: Any, group: str, text: str, value: str = "", *, share: bool = False) -> Any:
    return field(default=default, metadata={"help": text, "group": group, "value": value, "share": share})


QUESTION = "Question"
TRAININGS = "Trainings"
COST = "Cost"
OUTPUT = "Resuming and output"


@dataclass(frozen=True)
class DataConfig:
    """All settings."""

    task: str = field(metadata={"help": "A built-in task, or a Python file with a function task()."})

    target: str | None = _option(
        None,
        QUESTION,
        "Goals whose needed samples are predicted, for example accuracy=0.95,accuracy=0.97.",
        "METRIC=VALUE,...",
    )
    metric: str | None = _option(
        None,
        QUESTION,
        "Metric to extrapolate; for accuracy its error. [default: the target's, else accuracy or loss]",
        "NAME",
    )

    fractions: str = _option(
        "1/16,1/8,1/4,1/2,1",
        TRAININGS,
        "Parts of the training set to train on: 4 or more, as fractions or decimals.",
        "X,X,...",
    )
    seeds: int = _option(
        3, TRAININGS, "Trainings per size, with seeds 0, 1, 2 ... for other weights and other samples.", "N"
    )
    length: str = _option(
        "steps",
        TRAININGS,
        "Length of the trainings: steps (every size as many steps as the largest takes in --epochs) "
        "or epochs (every size --epochs).",
        "NAME",
    )
    epochs: int | None = _option(
        None, TRAININGS, "Passes of the largest size over its samples. [default: the task's]", "N"
    )
    global_batch: int | None = _option(None, TRAININGS, "Samples per optimizer step. [default: the task's]", "N")
    lr: float | None = _option(None, TRAININGS, "Peak learning rate. [default: the task's]", "X")
    train_flags: str | None = _option(
        None, TRAININGS, "Further flags of paceline train in one string, for example '--optimizer adamw'.", "FLAGS"
    )
    holdout: int = _option(
        0, TRAININGS, "Keep back so many training samples, and measure on them instead of the evaluation set.", "N"
    )
    workers: str = _option(
        "auto",
        TRAININGS,
        "Worker processes of each training: a number, or auto for one per GPU, else one per CPU core.",
        "N",
    )
    data_dir: str | None = _option(None, TRAININGS, "Directory of the data set.", "DIR")

    peak: float | None = _option(None, COST, "Peak TFLOP/s of one device, in the precision of the trainings.", "X")
    utilisation: float | None = _option(
        None, COST, "Fraction of the peak that a training reaches, measured by you: 0.4 or 40%.", "X", share=True
    )
    price: float | None = _option(None, COST, "Price of one device for an hour.", "X")

    resume: str | None = _option(None, OUTPUT, "Resume a stopped plan from its run directory.", "RUN")
    run_dir: str | None = _option(
        None, OUTPUT, "Use exactly this directory instead of runs/<date>_<time>_plan-data-<task>.", "DIR"
    )
    format: str = _option("text", OUTPUT, "text, or json for one JSON object at the end.", "NAME")

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
    check_format(config.format)
    parse_workers(config.workers)
    _ = config.parts
    if config.length not in LENGTHS:
        raise PacelineError(f"--length {config.length} is unknown", hint=f"legal values: {choices(LENGTHS)}")
    for name in ("seeds", "epochs", "global_batch", "lr", "peak", "price"):
        positive("--" + name.replace("_", "-"), getattr(config, name))
    positive("--utilisation", config.utilisation, 1.0)
    if config.holdout < 0:
        raise PacelineError(f"--holdout {config.holdout} is out of range", hint="legal: 0 <= value")
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
