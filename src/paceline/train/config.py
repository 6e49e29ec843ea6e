"""The settings of `paceline train`: one frozen dataclass from which the flags, the record in run.json and the
rules of `--resume` are all derived. Nothing here imports torch.

A field that is None takes the task's default. `resolve` fills those in, so that run.json holds what was really used.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paceline.parallel.placement import parse_workers
from paceline.records.errors import PacelineError, choices
from paceline.records.target import parse_target
from paceline.tasks.table import AUGMENTATIONS, Defaults, TaskOptions
from paceline.train.duration import Duration
from paceline.train.optim.table import OPTIMIZERS, Settings
from paceline.train.schedules import SHAPES

PRECISIONS = ("auto", "fp32", "bf16", "fp64")
FORMATS = ("text", "json")


def _recipe(default: Any, text: str) -> Any:
    """A field that decides the result: a resumed run must have the same."""
    return field(default=default, metadata={"help": text, "recipe": True})


def _control(default: Any, text: str) -> Any:
    """A field that decides how a run is carried out: it may change when a run is resumed."""
    return field(default=default, metadata={"help": text, "recipe": False})


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a training run."""

    task: str = field(metadata={"help": "A built-in task, or a Python file with task().", "recipe": True})
    workers: str = _control("auto", "Ranks on this machine: auto (one a CUDA device, else one a core) or a number.")
    global_batch: int | None = _recipe(None, "Samples a step, over all workers.")
    accumulate: int = _recipe(1, "Micro-batches into which each worker cuts its part of a batch.")
    epochs: int | None = _recipe(None, "Passes over the training set.")
    steps: int | None = _recipe(None, "Optimizer steps, instead of --epochs.")
    lr: float | None = _recipe(None, "Peak learning rate.")
    optimizer: str | None = _recipe(None, f"One of: {', '.join(OPTIMIZERS)}.")
    momentum: float | None = _recipe(None, "Of SGD.")
    nesterov: bool = _recipe(False, "Nesterov's form of SGD's momentum.")
    weight_decay: float | None = _recipe(None, "Of matrices and filters; biases and norms never decay.")
    schedule: str | None = _recipe(None, f"Shape of the learning rate after warm-up: {', '.join(SHAPES)}.")
    warmup: str | None = _recipe(None, "Length of the linear warm-up: steps (200) or epochs (2ep).")
    label_smoothing: float = _recipe(0.0, "Of the training loss, 0 to below 1.")
    augment: str = _recipe("none", f"Comma-separated, of: {', '.join(AUGMENTATIONS)}; or none.")
    width: float | None = _recipe(None, "Channel factor of fashion-mnist-wrn.")
    precision: str = _recipe("auto", "auto, fp32, bf16 (autocast) or fp64.")
    target: str | None = _recipe(None, "Stop when reached, for instance accuracy=0.90 or loss=0.3.")
    patience: int = _recipe(1, "Evaluations in a row that must reach the target.")
    eval_every: str = _recipe("1ep", "Evaluate every so many steps (200) or epochs (1ep); always after the last step.")
    seed: int = _recipe(0, "Of weights, order of samples and augmentation.")
    deterministic: bool = _recipe(False, "Refuse operations that have no deterministic form.")
    resume: str | None = _control(None, "auto, or a run directory: go on from its newest complete checkpoint.")
    checkpoint_every: str = _control("1ep", "Steps (200) or epochs (1ep); the last step always is a checkpoint.")
    keep: int = _control(2, "Checkpoints to keep.")
    run_dir: str | None = _control(None, "Exactly this directory, instead of runs/<date>_<time>_<task>.")
    data_dir: str | None = _control(None, "Where the data set is, or shall be put.")
    loader_workers: int = _control(2, "DataLoader processes a rank, for tasks whose data are a map-style dataset.")
    grace: float = _control(30.0, "Seconds that workers have to checkpoint after SIGTERM or Ctrl-C.")
    tensorboard: bool = _control(False, "Also write TensorBoard events into the run directory.")
    format: str = _control("text", "text, or json: one object at the end.")

    @property
    def task_options(self) -> TaskOptions:
        """What reaches into the task."""
        return TaskOptions(
            label_smoothing=self.label_smoothing,
            augment=parse_augment(self.augment),
            width=self.width,
            data_dir=self.data_dir,
        )

    @property
    def optimizer_settings(self) -> Settings:
        """Of a resolved config."""
        return Settings(
            lr=required(self.lr),
            momentum=required(self.momentum),
            nesterov=self.nesterov,
            weight_decay=required(self.weight_decay),
        )


def required(value: Any) -> Any:
    """A value that `resolve` has filled in."""
    if value is None:
        raise AssertionError("the configuration was not resolved")
    return value


def parse_augment(text: str) -> tuple[str, ...]:
    """`crop,flip` as names."""
    names = tuple(name.strip() for name in text.split(",") if name.strip() and name.strip() != "none")
    for name in names:
        _one_of("--augment", name, AUGMENTATIONS)
    return names


def _one_of(flag: str, value: str, legal: Any) -> None:
    if value not in legal:
        close = difflib.get_close_matches(value, list(legal), n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise PacelineError(f"{flag} {value} is unknown", hint=f"{meant}legal values: {choices(legal)}")


def _within(flag: str, value: float | None, low: float, high: float, *, above: bool = False) -> None:
    if value is None:
        return
    ok = (low < value if above else low <= value) and value < high and math.isfinite(value)
    if not ok:
        sign = "<" if above else "<="
        top = "" if high == math.inf else f" < {high:g}"
        raise PacelineError(f"{flag} {value:g} is out of range", hint=f"legal: {low:g} {sign} value{top}")


def check(config: TrainConfig) -> None:
    """Refuse what cannot be right, before anything is started.

    Raises:
        PacelineError: naming the flag, the value and the legal values.
    """
    if config.optimizer is not None:
        _one_of("--optimizer", config.optimizer, OPTIMIZERS)
        _check_taken(config)
    if config.schedule is not None:
        _one_of("--schedule", config.schedule, SHAPES)
    parse_workers(config.workers)
    _one_of("--precision", config.precision, PRECISIONS)
    _one_of("--format", config.format, FORMATS)
    parse_augment(config.augment)
    if config.epochs is not None and config.steps is not None:
        raise PacelineError("--epochs and --steps were both given", hint="leave one of them out")
    for flag in ("global_batch", "accumulate", "epochs", "steps", "patience", "keep"):
        _within("--" + flag.replace("_", "-"), getattr(config, flag), 1, math.inf)
    for flag in ("lr", "momentum", "weight_decay", "grace", "loader_workers"):
        _within("--" + flag.replace("_", "-"), getattr(config, flag), 0, 1 if flag == "momentum" else math.inf)
    _within("--seed", config.seed, 0, 2**63)
    _within("--label-smoothing", config.label_smoothing, 0, 1)
    _within("--width", config.width, 0, math.inf, above=True)
    for flag in ("warmup", "eval_every", "checkpoint_every"):
        text = getattr(config, flag)
        if text is not None and Duration.parse(text, "--" + flag.replace("_", "-")).value == 0 and flag != "warmup":
            raise PacelineError(f"--{flag.replace('_', '-')} {text} is out of range", hint="at least one step")
    if config.target is not None:
        parse_target(config.target)


def require_shared(global_batch: int, workers: int) -> None:
    """Refuse a batch that leaves a worker without a sample in every step.

    Raises:
        PacelineError: fewer samples than workers.
    """
    if global_batch < workers:
        raise PacelineError(
            f"a global batch of {global_batch} cannot be shared by {workers} workers",
            why="some would never have a sample",
            hint=f"--global-batch {workers} or more, or --workers {global_batch}",
        )


def _check_taken(config: TrainConfig) -> None:
    takes = OPTIMIZERS[required(config.optimizer)].takes
    if config.momentum and "momentum" not in takes:
        raise PacelineError(f"{config.optimizer} does not take --momentum", hint="leave it out, or --optimizer sgd")
    if config.nesterov and "nesterov" not in takes:
        raise PacelineError(f"{config.optimizer} does not take --nesterov", hint="leave it out, or --optimizer sgd")


def resolve(config: TrainConfig, defaults: Defaults) -> TrainConfig:
    """Fill in the task's defaults, then check again what only now is known.

    Raises:
        PacelineError: a default is out of range, or the task's optimizer does not take what was given.
    """
    optimizer = config.optimizer or defaults.optimizer
    _one_of("--optimizer", optimizer, OPTIMIZERS)
    takes = OPTIMIZERS[optimizer].takes
    own_lr = defaults.lr if optimizer == defaults.optimizer else OPTIMIZERS[optimizer].lr
    momentum = defaults.momentum if "momentum" in takes else 0.0
    filled = dataclasses.replace(
        config,
        optimizer=optimizer,
        global_batch=_or(config.global_batch, defaults.global_batch),
        epochs=config.epochs if config.steps is not None else _or(config.epochs, defaults.epochs),
        lr=_or(config.lr, own_lr),
        momentum=_or(config.momentum, momentum),
        weight_decay=_or(config.weight_decay, defaults.weight_decay),
        schedule=_or(config.schedule, defaults.schedule),
        warmup=_or(config.warmup, defaults.warmup),
    )
    check(filled)
    if filled.nesterov and not filled.momentum:
        raise PacelineError("--nesterov needs a momentum", hint="--momentum 0.9")
    return filled


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """For run.json."""
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """From run.json; settings that this version does not know are refused, since they may have decided the result.

    Raises:
        PacelineError: unknown settings, values of another type, or no task.
    """
    known = {f.name for f in dataclasses.fields(TrainConfig)}
    unknown = sorted(set(values) - known)
    if unknown or "task" not in values:
        raise PacelineError(
            "the run's settings cannot be read",
            why=f"unknown to this version: {', '.join(unknown)}" if unknown else "no task is named",
            hint="use the version of Paceline that wrote the run (see versions in its run.json)",
        )
    try:
        return msgspec.convert(dict(values), TrainConfig)
    except msgspec.ValidationError as error:
        raise PacelineError(
            "the run's settings cannot be read", why=str(error), hint="was its run.json edited? start a new run"
        ) from error


def for_resume(stored: TrainConfig, given: Mapping[str, Any]) -> TrainConfig:
    """The stored settings with what the user gave anew.

    `--epochs` and `--steps` may grow a run; any other setting that decides the result must be what it was.

    Raises:
        PacelineError: a setting that decides the result was changed.
    """
    for f in dataclasses.fields(TrainConfig):
        if f.name not in given or not f.metadata["recipe"] or f.name in ("epochs", "steps"):
            continue
        if f.name == "precision" and given[f.name] == "auto":
            continue  # run.json holds what auto came to; it stays that, also on another machine
        if given[f.name] != getattr(stored, f.name):
            flag = "TASK" if f.name == "task" else "--" + f.name.replace("_", "-")
            raise PacelineError(
                f"the run to be resumed has {flag} {getattr(stored, f.name)}, not {given[f.name]}",
                why="a resumed run goes on with the settings that decide its result",
                hint=f"leave {flag} out, or start a new run with another --run-dir",
            )
    changed = {name: value for name, value in given.items() if name != "precision"}
    if "steps" in changed and "epochs" not in changed:
        changed["epochs"] = None
    if "epochs" in changed and "steps" not in changed:
        changed["steps"] = None
    return dataclasses.replace(stored, **changed)
