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
from paceline.train.choices import AVERAGES, MONITORS, flag_of, parse_augment
from paceline.train.compress_table import COMPRESSIONS
from paceline.train.norms.table import BATCH_NORMS
from paceline.train.optim.table import OPTIMIZERS, Settings
from paceline.train.rules import RULES
from paceline.train.schedules import SHAPES, WARMUPS


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
    accumulate: int = _recipe(
        1, "Micro-batches into which a batch is cut, one after the other; the workers share each."
    )
    epochs: int | None = _recipe(None, "Passes over the training set.")
    steps: int | None = _recipe(None, "Optimizer steps, instead of --epochs.")
    keep_updates: bool = _recipe(False, "As many steps as --epochs of --base-batch: training longer.")
    lr: float | None = _recipe(None, "Peak learning rate; with --lr-rule, that of --base-batch.")
    lr_rule: str = _recipe("none", f"What a larger batch does to the rate: {', '.join(RULES)}.")
    base_batch: int | None = _recipe(None, "The batch that --lr was found for; the task's own, when left out.")
    optimizer: str | None = _recipe(None, f"One of: {', '.join(OPTIMIZERS)}.")
    momentum: float | None = _recipe(None, "Of sgd, lars and muon.")
    nesterov: bool = _recipe(False, "Nesterov's form of the momentum.")
    beta1: float | None = _recipe(None, "Of adamw, lamb and novograd: memory of the gradient.")
    beta2: float | None = _recipe(None, "Likewise: memory of its square.")
    eps: float | None = _recipe(None, "Likewise: added to the root of the square.")
    trust: float | None = _recipe(None, "Of lars: how far a layer moves, as a part of its norm.")
    weight_decay: float | None = _recipe(None, "Of matrices and filters; biases and norms never decay.")
    clip_norm: float | None = _recipe(None, "Longest gradient over all parameters, after the sum over workers.")
    schedule: str | None = _recipe(None, f"Shape of the learning rate after warm-up: {', '.join(SHAPES)}.")
    warmup: str | None = _recipe(None, "Length of the warm-up: steps (200) or epochs (2ep).")
    warmup_shape: str = _recipe("linear", f"One of: {', '.join(WARMUPS)}.")
    warmup_from: float | None = _recipe(None, "Where warm-up begins, as a part of the peak; linear from 0 if left out.")
    cooldown: float = _recipe(0.2, "Of --schedule wsd: its last part, as a fraction of the run.")
    decay_at: str = _recipe("0.5,0.75", "Of --schedule step: where it drops, as fractions of the run.")
    decay_factor: float = _recipe(0.1, "Of --schedule step: what each drop multiplies the rate by.")
    grow_batch: bool = _recipe(False, "Of --schedule step: grow the batch instead of dropping the rate.")
    max_batch: int | None = _recipe(None, "How far --grow-batch goes: a tenth of the training set, if left out.")
    batch_norm: str = _recipe("local", f"Statistics over: {', '.join(BATCH_NORMS)}.")
    ghost_size: int = _recipe(32, "Of --batch-norm ghost: samples that share their statistics.")
    bn_momentum: float | None = _recipe(None, "Of running statistics: the weight of a new batch.")
    average: str = _recipe("none", f"Average of the weights, which is evaluated and kept: {', '.join(AVERAGES)}.")
    ema_decay: float = _recipe(0.999, "Of --average ema: the weight of what was, at each step.")
    swa_from: float = _recipe(0.75, "Of --average swa: the part of the run after which each epoch's end is averaged.")
    compress: str = _recipe("none", f"Numbers in which gradients travel: {', '.join(COMPRESSIONS)}.")
    label_smoothing: float = _recipe(0.0, "Of the training loss, 0 to below 1.")
    augment: str = _recipe("none", f"Comma-separated, of: {', '.join(AUGMENTATIONS)}; or none.")
    holdout: int = _recipe(0, "Training samples to keep back, and to evaluate on instead of the evaluation set.")
    train_samples: int | None = _recipe(None, "Train on so many of the training samples; which ones, --seed decides.")
    width: float | None = _recipe(None, "Channel factor of fashion-mnist-wrn.")
    precision: str = _recipe("auto", "auto, fp32, bf16 (autocast) or fp64.")
    target: str | None = _recipe(None, "Stop when reached, for instance accuracy=0.90 or loss=0.3.")
    patience: int = _recipe(1, "Evaluations in a row that must reach the target.")
    eval_every: str = _recipe("1ep", "Evaluate every so many steps (200) or epochs (1ep); always after the last step.")
    monitor: str = _control("none", f"Also measured at each evaluation: {', '.join(MONITORS)}.")
    noise_every: int = _control(10, "Steps between records of gradient norms, for the noise scale; 0: none.")
    monitor_samples: int = _control(1000, "Of --monitor: training samples that it is measured on.")
    seed: int = _recipe(0, "Of weights, order of samples and augmentation.")
    deterministic: bool = _recipe(False, "Refuse operations that have no deterministic form.")
    init_from: str | None = _recipe(None, "A run or one of its checkpoints, whose weights to begin with.")
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
        """Of a resolved config, before any scaling rule."""
        given: dict[str, Any] = {}
        if self.beta1 is not None and self.beta2 is not None:
            given["betas"] = (self.beta1, self.beta2)
        given |= {name: value for name in ("eps", "trust") if (value := getattr(self, name)) is not None}
        return Settings(
            lr=required(self.lr),
            momentum=required(self.momentum),
            nesterov=self.nesterov,
            weight_decay=required(self.weight_decay),
            **given,
        )


def required(value: Any) -> Any:
    """A value that `resolve` has filled in."""
    if value is None:
        raise AssertionError("the configuration was not resolved")
    return value


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
