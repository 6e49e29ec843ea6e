"""The settings of `paceline train`. Nothing here imports torch.

A field that is None takes the task's or the optimizer's default. `resolve` fills those in, so that run.json holds what
was really used; what a scaling rule makes of them stands in its facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.parallel.placement import parse_workers
from paceline.records.errors import PacelineError, choices
from paceline.settings.declare import VerbSettings, argument, control, format_setting, run_dir_setting, setting
from paceline.settings.legal import ABOVE_ZERO, COUNT, FRACTION, NOT_NEGATIVE, PER_DEVICE, SEED, SHARE, Range
from paceline.tasks.table import AUGMENTATIONS, TaskOptions
from paceline.train.choices import (
    AVERAGES,
    BATCH_NORMS,
    COMPRESSIONS,
    MONITORS,
    PRECISIONS,
    SAVE_SIGNALS,
    parse_augment,
    parse_fractions,
)
from paceline.train.optim.table import OPTIMIZERS
from paceline.train.rules import RULES
from paceline.train.schedules import SHAPES, WARMUPS, Duration, parse_interval


@dataclass(frozen=True)
class TrainConfig(VerbSettings):
    """All settings of a training run."""

    task: str = argument("A built-in task, or a Python file with a function task().")

    epochs: int | None = setting(None, "Passes over the training set. [default: the task's]", COUNT, group="Length")
    steps: int | None = setting(None, "Optimizer steps, instead of --epochs.", COUNT)
    keep_updates: bool = setting(
        False, "Take as many steps as --epochs at --base-batch would, so that a larger batch sees more epochs."
    )

    global_batch: int | None = setting(
        None, "Samples per optimizer step, over all workers. [default: the task's]", COUNT, group="Batch and workers"
    )
    workers: str = control("auto", f"Worker processes on this machine: {PER_DEVICE}", parse_workers, value="N")
    accumulate: int = setting(1, "Micro-batches per step (gradient accumulation), each split over the workers.", COUNT)
    base_batch: int | None = setting(None, "Batch size for which --lr was tuned. [default: the task's]", COUNT)
    grow_batch: bool = setting(False, "For --schedule step: grow the batch at each drop instead of lowering the rate.")
    max_batch: int | None = setting(
        None, "For --grow-batch: the largest batch. [default: a tenth of the training set]", COUNT
    )

    lr: float | None = setting(
        None,
        "Peak learning rate. With --lr-rule, the rate at --base-batch. [default: the task's]",
        NOT_NEGATIVE,
        group="Learning rate",
    )
    schedule: str | None = setting(None, "Learning rate schedule after warm-up: {legal}. [default: the task's]", SHAPES)
    warmup: str | None = setting(
        None,
        "Length of the warm-up in steps (200) or epochs (2ep). [default: the task's]",
        Duration.parse,
        value="LENGTH",
    )
    warmup_shape: str = setting("linear", "Shape of the warm-up: {legal}.", WARMUPS)
    warmup_from: float | None = setting(
        None,
        "Rate at which warm-up starts, as a fraction of the peak. [default: linear from 0]",
        Range(0, 1, closed=True),
    )
    lr_rule: str = setting("none", "How the rate scales with the batch size: {legal}.", RULES)
    decay_at: str = setting(
        "0.5,0.75",
        "For --schedule step: where the rate drops, as fractions of the run.",
        parse_fractions,
        value="X,X,...",
    )
    decay_factor: float = setting(
        0.1, "For --schedule step: factor by which each drop multiplies the rate.", Range(0, 1, above=True)
    )
    cooldown: float = setting(0.2, "For --schedule wsd: length of the final decay, as a fraction of the run.", SHARE)

    optimizer: str | None = setting(None, "One of: {legal}. [default: the task's]", OPTIMIZERS, group="Optimizer")
    weight_decay: float | None = setting(
        None,
        "Weight decay of matrices and filters; biases and norm parameters are not decayed. [default: the task's]",
        NOT_NEGATIVE,
    )
    momentum: float | None = setting(None, "Momentum of sgd, lars and muon. [default: the task's]", FRACTION)
    nesterov: bool = setting(False, "Use Nesterov momentum.")
    beta1: float | None = setting(
        None, "Decay rate of the mean of gradients, for adamw, lamb and novograd. [default: the optimizer's]", FRACTION
    )
    beta2: float | None = setting(
        None,
        "Decay rate of the mean of squared gradients, for adamw, lamb and novograd. [default: the optimizer's]",
        FRACTION,
    )
    eps: float | None = setting(
        None,
        "Added to the denominator for numerical stability, for adamw, lamb and novograd. [default: the optimizer's]",
        ABOVE_ZERO,
    )
    trust: float | None = setting(None, "Trust coefficient of lars. [default: the optimizer's]", ABOVE_ZERO)

    clip_norm: float | None = setting(
        None,
        "Maximum norm of the gradient over all parameters, after averaging over workers. [default: no clipping]",
        ABOVE_ZERO,
        group="Regularization and averaging",
    )
    label_smoothing: float = setting(0.0, "Label smoothing of the training loss, from 0 to below 1.", FRACTION)
    augment: str = setting(
        "none",
        f"Data augmentation: none, or a comma-separated list of {choices(AUGMENTATIONS)}.",
        parse_augment,
        value="NAMES",
    )
    average: str = setting("none", "Average of the weights to evaluate and save: {legal}.", AVERAGES)
    ema_decay: float = setting(0.999, "For --average ema: decay rate per step.", FRACTION)
    swa_from: float = setting(
        0.75,
        "For --average swa: fraction of the run after which weights are averaged at the end of each epoch.",
        FRACTION,
    )

    precision: str = setting(
        "auto",
        "Precision of forward and backward: auto, fp32, bf16 (autocast) or fp64.",
        PRECISIONS,
        group="Precision and batch norm",
    )
    compress: str = setting("none", "Data type in which gradients are communicated: {legal}.", COMPRESSIONS)
    batch_norm: str = setting(
        "local",
        "Samples that share batch norm statistics: local (one worker's), sync (all) or ghost (groups of --ghost-size).",
        BATCH_NORMS,
    )
    ghost_size: int = setting(32, "For --batch-norm ghost: samples per group.", Range(2))
    bn_momentum: float | None = setting(
        None, "Weight of a new batch in batch norm's running statistics. [default: the model's]", SHARE
    )

    data_dir: str | None = control(
        None,
        "Directory of the data set, which is downloaded there if it is missing.",
        value="DIR",
        group="Data and model",
    )
    train_samples: int | None = setting(
        None, "Train on so many training samples, chosen by --seed. [default: all]", COUNT
    )
    holdout: int = setting(
        0, "Keep back so many training samples, and evaluate on them instead of the evaluation set.", NOT_NEGATIVE
    )
    loader_workers: int = control(
        2, "DataLoader processes per worker, for tasks with a map-style dataset.", NOT_NEGATIVE
    )
    init_from: str | None = setting(None, "Start from the weights of a run or of one of its checkpoints.", value="PATH")
    width: float | None = setting(
        None, "Channel multiplier of the model of fashion-mnist-wrn. [default: the task's]", ABOVE_ZERO
    )

    target: str | None = setting(
        None,
        "Stop when a metric reaches a value, for example accuracy=0.90 or loss=0.3.",
        value="METRIC=VALUE",
        group="Evaluation and target",
    )
    patience: int = setting(1, "Consecutive evaluations that must reach the target.", COUNT)
    eval_every: str = setting(
        "1ep",
        "Interval between evaluations in steps (200) or epochs (1ep). The last step is always evaluated.",
        parse_interval,
        value="LENGTH",
    )

    resume: str | None = control(
        None,
        "Resume from the newest complete checkpoint of a run directory; auto finds the newest run.",
        value="RUN",
        group="Checkpoints and resuming",
    )
    checkpoint_every: str = control(
        "1ep",
        "Interval between checkpoints in steps (200) or epochs (1ep). The last step is always saved.",
        parse_interval,
        value="LENGTH",
    )
    keep: int = control(2, "Number of checkpoints to keep.", COUNT)
    grace: float = control(
        30.0, "Seconds that workers have to save a checkpoint after SIGTERM or Ctrl-C.", NOT_NEGATIVE, value="SECONDS"
    )
    save_signal: str = control(
        "USR1", "Signal that makes a running training save a checkpoint and continue: {legal}.", SAVE_SIGNALS
    )

    monitor: str = control("none", "Measure at each evaluation: {legal}.", MONITORS, group="Extra measurements")
    monitor_samples: int = control(1000, "For --monitor: training samples to measure it on.", COUNT)
    noise_every: int = control(
        10,
        "Steps between records of gradient norms, from which the noise scale is estimated; 0 for none.",
        NOT_NEGATIVE,
    )

    seed: int = setting(
        0, "Seed of the weights, the order of samples and augmentation.", SEED, group="Reproducibility and output"
    )
    deterministic: bool = setting(False, "Raise an error for operations without a deterministic form.")
    run_dir: str | None = run_dir_setting("<task>")
    tensorboard: bool = control(False, "Also write TensorBoard event files into the run directory.")
    format: str = format_setting()
    timings: bool = control(False, "Also show how long start, training and end took; not under torchrun.")

    @property
    def task_options(self) -> TaskOptions:
        """What reaches into the task."""
        return TaskOptions(
            label_smoothing=self.label_smoothing,
            augment=parse_augment(self.augment),
            width=self.width,
            data_dir=self.data_dir,
        )


def for_resume(stored: TrainConfig, given: Mapping[str, Any]) -> TrainConfig:
    """The stored settings with what the user gave anew; `--epochs` and `--steps` may grow a run.

    Raises:
        PacelineError: a setting that decides the result was changed.
    """
    # run.json holds what the precision auto came to; it stays that, also on another machine.
    changed = {name: value for name, value in given.items() if (name, value) != ("precision", "auto")}
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
    return stored.resumed_with(changed, free=("epochs", "steps"))
