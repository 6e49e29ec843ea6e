"""The built-in tasks by name, with what the command line must know before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass

AUGMENTATIONS = ("crop", "flip", "erase")
"""Names that --augment takes, in the order in which they are applied."""


@dataclass(frozen=True)
class Defaults:
    """What a task trains with when the user does not say otherwise.

    Attributes:
        global_batch: samples a step, over all workers.
        epochs: passes over the training set.
        lr: peak learning rate.
        optimizer: a name of `paceline.train.optim.table`.
        momentum: of SGD.
        weight_decay: of the matrices and filters; biases and norms have none.
        schedule: a name of `paceline.train.schedules`.
        warmup: as --warmup takes it.
    """

    global_batch: int = 64
    epochs: int = 10
    lr: float = 0.01
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup: str = "0"


@dataclass(frozen=True)
class Part:
    """Which part of a task's training set a run has.

    Attributes:
        holdout: samples kept back for evaluation, the same in all runs.
        samples: of the rest, to train on; None takes all.
        seed: of the run; decides which `samples` they are.
    """

    holdout: int = 0
    samples: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class TaskEntry:
    """One built-in task.

    Attributes:
        factory: `module:function`, called as function(options) -> Task.
        data: the data set that must be there, by its name in `paceline.tasks.data`; None when it comes with a library.
        options: names of `TaskOptions` that it takes.
        metrics: measured beside the loss; all of them fractions.
    """

    factory: str
    defaults: Defaults
    data: str | None = None
    options: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)


BUILT_IN: dict[str, TaskEntry] = {
    "linear": TaskEntry(
        factory="paceline.tasks.linear:build",
        defaults=Defaults(global_batch=64, epochs=30, lr=0.1, momentum=0.0),
        metrics=(),
    ),
    "digits": TaskEntry(
        factory="paceline.tasks.digits:build",
        defaults=Defaults(global_batch=64, epochs=30, lr=0.05, weight_decay=1e-4, schedule="cosine"),
        options=("label_smoothing",),
    ),
    "shapes": TaskEntry(
        factory="paceline.tasks.shapes:build",
        defaults=Defaults(global_batch=64, epochs=6, lr=0.1, schedule="linear"),
        options=("label_smoothing",),
    ),
    "fashion-mnist": TaskEntry(
        factory="paceline.tasks.fashion_mnist:build",
        defaults=Defaults(global_batch=128, epochs=5, lr=0.05, weight_decay=5e-4, schedule="linear", warmup="200"),
        data="fashion-mnist",
        options=("label_smoothing", "augment"),
    ),
    "fashion-mnist-wrn": TaskEntry(
        factory="paceline.tasks.fashion_mnist:build_wide_resnet",
        defaults=Defaults(global_batch=128, epochs=10, lr=0.1, weight_decay=5e-4, schedule="cosine", warmup="1ep"),
        data="fashion-mnist",
        options=("label_smoothing", "augment", "width"),
    ),
}


@dataclass(frozen=True)
class TaskOptions:
    """Settings that reach into a task. A user's `task()` gets those whose names are among its parameters.

    Attributes:
        label_smoothing: 0 <= value < 1, of the training loss only.
        augment: of `AUGMENTATIONS`.
        width: factor on the channels of a WideResNet, above 0.
        data_dir: where the data set was found.
    """

    label_smoothing: float = 0.0
    augment: tuple[str, ...] = ()
    width: float | None = None
    data_dir: str | None = None
