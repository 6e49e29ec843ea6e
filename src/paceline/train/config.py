"""The settings of `paceline train`: one frozen dataclass from which the flags, the record in run.json and the
rules of `--resume` are all derived. Nothing here imports torch.

A field that is None takes the task's or the optimizer's default. `resolve` fills those in, so that run.json holds what
was really used; what a scaling rule makes of them stands in its facts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paceline.records.errors import PacelineError
from paceline.tasks.table import AUGMENTATIONS, TaskOptions
from paceline.train.choices import AVERAGES, COMPRESSIONS, MONITORS, SAVE_SIGNALS, flag_of, parse_augment
from paceline.train.optim.table import OPTIMIZERS
from paceline.train.rules import RULES
from paceline.train.schedules import SHAPES, WARMUPS


def _recipe(default: Any, group: str, text: str, value: str = "") -> Any:
    """A field that decides the result: a resumed run must have the same.

    Args:
        default: None takes the task's or the optimizer's own.
        group: where help lists the flag; groups stand in the order of their first field.
        text: what it does.
        value: what help calls its value.
    """
    return field(default=default, metadata={"help": text, "group": group, "value": value, "recipe": True})


def _control(default: Any, group: str, text: str, value: str = "") -> Any:
    """A field that decides how a run is carried out: it may change when a run is resumed."""
    return field(default=default, metadata={"help": text, "group": group, "value": value, "recipe": False})


LENGTH = "Length"
BATCH = "Batch and workers"
RATE = "Learning rate"
OPTIMIZER = "Optimizer"
REGULARIZATION = "Regularization and averaging"
PRECISION = "Precision and batch norm"
DATA = "Data and model"
EVALUATION = "Evaluation and target"
CHECKPOINTS = "Checkpoints and resuming"
MEASURING = "Extra measurements"
OUTPUT = "Reproducibility and output"


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a training run."""

    task: str = field(metadata={"help": "A built-in task, or a Python file with a function task().", "recipe": True})

    epochs: int | None = _recipe(None, LENGTH, "Passes over the training set. [default: the task's]", "N")
    steps: int | None = _recipe(None, LENGTH, "Optimizer steps, instead of --epochs.", "N")
    keep_updates: bool = _recipe(
        False, LENGTH, "Take as many steps as --epochs at --base-batch would, so that a larger batch sees more epochs."
    )

    global_batch: int | None = _recipe(
        None, BATCH, "Samples per optimizer step, over all workers. [default: the task's]", "N"
    )
    workers: str = _control(
        "auto",
        BATCH,
        "Worker processes on this machine: a number, or auto for one per GPU, else one per CPU core.",
        "N",
    )
    accumulate: int = _recipe(
        1, BATCH, "Micro-batches per step (gradient accumulation), each split over the workers.", "N"
    )
    base_batch: int | None = _recipe(None, BATCH, "Batch size for which --lr was tuned. [default: the task's]", "N")
    grow_batch: bool = _recipe(
        False, BATCH, "For --schedule step: grow the batch at each drop instead of lowering the rate."
    )
    max_batch: int | None = _recipe(
        None, BATCH, "For --grow-batch: the largest batch. [default: a tenth of the training set]", "N"
    )

    lr: float | None = _recipe(
        None, RATE, "Peak learning rate. With --lr-rule, the rate at --base-batch. [default: the task's]", "X"
    )
    schedule: str | None = _recipe(
        None, RATE, f"Learning rate schedule after warm-up: {', '.join(SHAPES)}. [default: the task's]", "NAME"
    )
    warmup: str | None = _recipe(
        None, RATE, "Length of the warm-up in steps (200) or epochs (2ep). [default: the task's]", "LENGTH"
    )
    warmup_shape: str = _recipe("linear", RATE, f"Shape of the warm-up: {', '.join(WARMUPS)}.", "NAME")
    warmup_from: float | None = _recipe(
        None, RATE, "Rate at which warm-up starts, as a fraction of the peak. [default: linear from 0]", "X"
    )
    lr_rule: str = _recipe("none", RATE, f"How the rate scales with the batch size: {', '.join(RULES)}.", "NAME")
    decay_at: str = _recipe(
        "0.5,0.75", RATE, "For --schedule step: where the rate drops, as fractions of the run.", "X,X,..."
    )
    decay_factor: float = _recipe(0.1, RATE, "For --schedule step: factor by which each drop multiplies the rate.", "X")
    cooldown: float = _recipe(
        0.2, RATE, "For --schedule wsd: length of the final decay, as a fraction of the run.", "X"
    )

    optimizer: str | None = _recipe(None, OPTIMIZER, f"One of: {', '.join(OPTIMIZERS)}. [default: the task's]", "NAME")
    weight_decay: float | None = _recipe(
        None,
        OPTIMIZER,
        "Weight decay of matrices and filters; biases and norm parameters are not decayed. [default: the task's]",
        "X",
    )
    momentum: float | None = _recipe(None, OPTIMIZER, "Momentum of sgd, lars and muon. [default: the task's]", "X")
    nesterov: bool = _recipe(False, OPTIMIZER, "Use Nesterov momentum.")
    beta1: float | None = _recipe(
        None,
        OPTIMIZER,
        "Decay rate of the mean of gradients, for adamw, lamb and novograd. [default: the optimizer's]",
        "X",
    )
    beta2: float | None = _recipe(
        None,
        OPTIMIZER,
        "Decay rate of the mean of squared gradients, for adamw, lamb and novograd. [default: the optimizer's]",
        "X",
    )
    eps: float | None = _recipe(
        None,
        OPTIMIZER,
        "Added to the denominator for numerical stability, for adamw, lamb and novograd. [default: the optimizer's]",
        "X",
    )
    trust: float | None = _recipe(None, OPTIMIZER, "Trust coefficient of lars. [default: the optimizer's]", "X")

    clip_norm: float | None = _recipe(
        None,
        REGULARIZATION,
        "Maximum norm of the gradient over all parameters, after averaging over workers. [default: no clipping]",
        "X",
    )
    label_smoothing: float = _recipe(
        0.0, REGULARIZATION, "Label smoothing of the training loss, from 0 to below 1.", "X"
    )
    augment: str = _recipe(
        "none",
        REGULARIZATION,
        f"Data augmentation: none, or a comma-separated list of {', '.join(AUGMENTATIONS)}.",
        "NAMES",
    )
    average: str = _recipe(
        "none", REGULARIZATION, f"Average of the weights to evaluate and save: {', '.join(AVERAGES)}.", "NAME"
    )
    ema_decay: float = _recipe(0.999, REGULARIZATION, "For --average ema: decay rate per step.", "X")
    swa_from: float = _recipe(
        0.75,
        REGULARIZATION,
        "For --average swa: fraction of the run after which weights are averaged at the end of each epoch.",
        "X",
    )

    precision: str = _recipe(
        "auto", PRECISION, "Precision of forward and backward: auto, fp32, bf16 (autocast) or fp64.", "NAME"
    )
    compress: str = _recipe(
        "none", PRECISION, f"Data type in which gradients are communicated: {', '.join(COMPRESSIONS)}.", "NAME"
    )
    batch_norm: str = _recipe(
        "local",
        PRECISION,
        "Samples that share batch norm statistics: local (one worker's), sync (all) or ghost (groups of --ghost-size).",
        "NAME",
    )
    ghost_size: int = _recipe(32, PRECISION, "For --batch-norm ghost: samples per group.", "N")
    bn_momentum: float | None = _recipe(
        None, PRECISION, "Weight of a new batch in batch norm's running statistics. [default: the model's]", "X"
    )

    data_dir: str | None = _control(
        None, DATA, "Directory of the data set, which is downloaded there if it is missing.", "DIR"
    )
    train_samples: int | None = _recipe(
        None, DATA, "Train on so many training samples, chosen by --seed. [default: all]", "N"
    )
    holdout: int = _recipe(
        0, DATA, "Keep back so many training samples, and evaluate on them instead of the evaluation set.", "N"
    )
    loader_workers: int = _control(2, DATA, "DataLoader processes per worker, for tasks with a map-style dataset.", "N")
    init_from: str | None = _recipe(None, DATA, "Start from the weights of a run or of one of its checkpoints.", "PATH")
    width: float | None = _recipe(
        None, DATA, "Channel multiplier of the model of fashion-mnist-wrn. [default: the task's]", "X"
    )

    target: str | None = _recipe(
        None, EVALUATION, "Stop when a metric reaches a value, for example accuracy=0.90 or loss=0.3.", "METRIC=VALUE"
    )
    patience: int = _recipe(1, EVALUATION, "Consecutive evaluations that must reach the target.", "N")
    eval_every: str = _recipe(
        "1ep",
        EVALUATION,
        "Interval between evaluations in steps (200) or epochs (1ep). The last step is always evaluated.",
        "LENGTH",
    )

    resume: str | None = _control(
        None,
        CHECKPOINTS,
        "Resume from the newest complete checkpoint of a run directory; auto finds the newest run.",
        "RUN",
    )
    checkpoint_every: str = _control(
        "1ep",
        CHECKPOINTS,
        "Interval between checkpoints in steps (200) or epochs (1ep). The last step is always saved.",
        "LENGTH",
    )
    keep: int = _control(2, CHECKPOINTS, "Number of checkpoints to keep.", "N")
    grace: float = _control(
        30.0, CHECKPOINTS, "Seconds that workers have to save a checkpoint after SIGTERM or Ctrl-C.", "SECONDS"
    )
    save_signal: str = _control(
        "USR1",
        CHECKPOINTS,
        f"Signal that makes a running training save a checkpoint and continue: {', '.join(SAVE_SIGNALS)}.",
        "NAME",
    )
    monitor: str = _control("none", MEASURING, f"Measure at each evaluation: {', '.join(MONITORS)}.", "NAME")
    monitor_samples: int = _control(1000, MEASURING, "For --monitor: training samples to measure it on.", "N")
    noise_every: int = _control(
        10,
        MEASURING,
        "Steps between records of gradient norms, from which the noise scale is estimated; 0 for none.",
        "N",
    )

    seed: int = _recipe(0, OUTPUT, "Seed of the weights, the order of samples and augmentation.", "N")
    deterministic: bool = _recipe(False, OUTPUT, "Raise an error for operations without a deterministic form.")
    run_dir: str | None = _control(
        None, OUTPUT, "Use exactly this directory instead of runs/<date>_<time>_<task>.", "DIR"
    )
    tensorboard: bool = _control(False, OUTPUT, "Also write TensorBoard event files into the run directory.")
    format: str = _control("text", OUTPUT, "text, or json for one JSON object at the end.", "NAME")

    @property
    def task_options(self) -> TaskOptions:
        """What reaches into the task."""
        return TaskOptions(
            label_smoothing=self.label_smoothing,
            augment=parse_augment(self.augment),
            width=self.width,
            data_dir=self.data_dir,
        )


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
            flag = "TASK" if f.name == "task" else flag_of(f.name)
            raise PacelineError(
                f"the run to be resumed has {flag} {getattr(stored, f.name)}, not {given[f.name]}",
                why="a resumed run goes on with the settings that decide its result",
                hint=f"leave {flag} out, or start a new run with another --run-dir",
            )
    changed = {name: value for name, value in given.items() if name != "precision"}
    if stored.grow_batch and changed.get("epochs", stored.epochs) != stored.epochs:
        raise PacelineError(
            "a run whose batch grows cannot be made longer",
            why="its batches would have grown at other steps, so it would see samples twice or never",
            hint="leave --epochs out, or start a new run",
        )
    if "steps" in changed and "epochs" not in changed:
        changed["epochs"] = None
    if "epochs" in changed and "steps" not in changed:
        changed["steps"] = None
    return dataclasses.replace(stored, **changed)
