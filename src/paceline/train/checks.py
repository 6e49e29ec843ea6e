"""What cannot be right is refused by name, with the legal range, before anything is started. Never imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.parallel.placement import parse_workers
from paceline.records.errors import PacelineError, choices
from paceline.records.target import parse_target
from paceline.tasks.table import BUILT_IN
from paceline.train.choices import (
    AVERAGES,
    BATCH_NORMS,
    COMPRESSIONS,
    FORMATS,
    MONITORS,
    PRECISIONS,
    SAVE_SIGNALS,
    flag_of,
    one_of,
    parse_augment,
)
from paceline.train.config import TrainConfig
from paceline.train.optim.table import OPTIMIZERS
from paceline.train.rules import RULES
from paceline.train.schedules import SHAPES, WARMUPS, Duration

INF = math.inf


@dataclass(frozen=True)
class Range:
    """Legal values of a number: low <= value < high, or low < value when `above`; up to high when `closed`."""

    low: float
    high: float = INF
    above: bool = False
    closed: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value is legal."""
        over = self.low < value if self.above else self.low <= value
        under = value <= self.high if self.closed else value < self.high
        return over and under and math.isfinite(value)

    def __str__(self) -> str:
        left = f"{self.low:g} {'<' if self.above else '<='} value"
        return left if self.high == INF else f"{left} {'<=' if self.closed else '<'} {self.high:g}"


NAMES: dict[str, Collection[str]] = {
    "optimizer": OPTIMIZERS,
    "schedule": SHAPES,
    "lr_rule": RULES,
    "warmup_shape": WARMUPS,
    "batch_norm": BATCH_NORMS,
    "average": AVERAGES,
    "compress": COMPRESSIONS,
    "monitor": MONITORS,
    "precision": PRECISIONS,
    "save_signal": SAVE_SIGNALS,
    "format": FORMATS,
}
AT_LEAST_ONE, NOT_NEGATIVE, FRACTION = Range(1), Range(0), Range(0, 1)
RANGES: dict[str, Range] = {
    "global_batch": AT_LEAST_ONE,
    "base_batch": AT_LEAST_ONE,
    "max_batch": AT_LEAST_ONE,
    "ghost_size": Range(2),
    "accumulate": AT_LEAST_ONE,
    "epochs": AT_LEAST_ONE,
    "steps": AT_LEAST_ONE,
    "patience": AT_LEAST_ONE,
    "keep": AT_LEAST_ONE,
    "monitor_samples": AT_LEAST_ONE,
    "train_samples": AT_LEAST_ONE,
    "noise_every": NOT_NEGATIVE,
    "lr": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "grace": NOT_NEGATIVE,
    "loader_workers": NOT_NEGATIVE,
    "holdout": NOT_NEGATIVE,
    "momentum": FRACTION,
    "beta1": FRACTION,
    "beta2": FRACTION,
    "label_smoothing": FRACTION,
    "ema_decay": FRACTION,
    "swa_from": FRACTION,
    "eps": Range(0, above=True),
    "trust": Range(0, above=True),
    "clip_norm": Range(0, above=True),
    "width": Range(0, above=True),
    "bn_momentum": Range(0, 1, above=True, closed=True),
    "cooldown": Range(0, 1, above=True, closed=True),
    "decay_factor": Range(0, 1, above=True),
    "warmup_from": Range(0, 1, closed=True),
    "seed": Range(0, 2**63),
}
LENGTHS = {"warmup": 0, "eval_every": 1, "checkpoint_every": 1}
"""Settings that are a length of training, and the least that they may be."""


def check(config: TrainConfig) -> None:
    """Refuse what cannot be right.

    Raises:
        PacelineError: naming the flag, the value and the legal values.
    """
    for name, legal in NAMES.items():
        if (value := getattr(config, name)) is not None:
            one_of(flag_of(name), value, legal)
    for name, range_ in RANGES.items():
        if (number := getattr(config, name)) is not None and not range_.holds(number):
            raise PacelineError(f"{flag_of(name)} {number:g} is out of range", hint=f"legal: {range_}")
    for name, least in LENGTHS.items():
        text = getattr(config, name)
        if text is not None and Duration.parse(text, flag_of(name)).value == 0 < least:
            raise PacelineError(f"{flag_of(name)} {text} is out of range", hint="at least one step")
    parse_workers(config.workers)
    parse_augment(config.augment)
    parse_fractions("--decay-at", config.decay_at)
    if config.target is not None:
        parse_target(config.target)
    if config.optimizer is not None:
        check_taken(config, config.optimizer)
    for excluded in TOGETHER:
        excluded(config)


def parse_fractions(flag: str, text: str) -> tuple[float, ...]:
    """`0.5,0.75` as ascending numbers above 0 and below 1."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    ascending = all(a < b for a, b in zip((0.0, *found), (*found, 1.0), strict=True))
    if not found or not ascending:
        raise PacelineError(
            f"{flag} {text} is no list of points of a run", hint=f"ascending fractions between 0 and 1: {flag} 0.5,0.75"
        )
    return found


_TAKEN_AS = {
    "momentum": "momentum",
    "nesterov": "nesterov",
    "beta1": "betas",
    "beta2": "betas",
    "eps": "eps",
    "trust": "trust",
}
"""Settings of an optimizer, and the name by which its table says that it takes them."""


def check_taken(config: TrainConfig, optimizer: str) -> None:
    """Refuse a setting that the optimizer would ignore: silence would be a wrong result."""
    for name, taken_as in _TAKEN_AS.items():
        value = getattr(config, name)
        if (
            value is None
            or taken_as in OPTIMIZERS[optimizer].takes
            or (taken_as in ("momentum", "nesterov") and not value)
        ):
            continue
        others = [other for other, entry in OPTIMIZERS.items() if taken_as in entry.takes]
        raise PacelineError(
            f"{optimizer} does not take {flag_of(name)}", hint=f"leave it out; those that do: {choices(others)}"
        )


def _length(config: TrainConfig) -> None:
    if config.epochs is not None and config.steps is not None:
        raise PacelineError("--epochs and --steps were both given", hint="leave one of them out")
    for name in ("keep_updates", "grow_batch"):
        if getattr(config, name) and config.steps is not None:
            raise PacelineError(f"{flag_of(name)} needs a length in epochs", hint="--epochs instead of --steps")
    if config.keep_updates and config.grow_batch:
        raise PacelineError(
            "--keep-updates and --grow-batch exclude each other",
            why="one keeps the number of steps, the other lowers it on purpose",
            hint="leave one of them out",
        )


def _growth(config: TrainConfig) -> None:
    if config.grow_batch and config.schedule not in (None, "step"):
        raise PacelineError(
            "--grow-batch needs drops of the rate to take the place of", hint="--schedule step, with --decay-at"
        )


def _warmup(config: TrainConfig) -> None:
    if config.warmup_shape == "constant" and config.warmup_from == 0:
        raise PacelineError("a constant warm-up from 0 would not train", hint="--warmup-from 0.1, or leave it out")


TOGETHER: tuple[Callable[[TrainConfig], None], ...] = (_length, _growth, _warmup)
"""Rules about several settings."""


BESIDE: dict[str, dict[str, Collection[Any] | None]] = {
    "base_batch": {"lr_rule": None, "keep_updates": (True,)},
    "max_batch": {"grow_batch": (True,)},
    "cooldown": {"schedule": ("wsd",)},
    "decay_at": {"schedule": ("step",)},
    "decay_factor": {"schedule": ("step",)},
    "ghost_size": {"batch_norm": ("ghost",)},
    "ema_decay": {"average": ("ema",)},
    "swa_from": {"average": ("swa",)},
    "monitor_samples": {"monitor": ("sharpness",)},
    "patience": {"target": None},
}
"""Settings that take part only beside one of others, with these values (None: any that was given)."""


def check_takes_part(given: Mapping[str, Any]) -> None:
    """Refuse a setting that would change nothing, since what it belongs to was not asked for.

    Args:
        given: what the user gave for a new run, by field name.

    Raises:
        PacelineError: naming the flag, and that beside which it would take part.
    """
    for name, others in BESIDE.items():
        if name not in given or any(_among(given, other, legal) for other, legal in others.items()):
            continue
        wanted = " or ".join(
            f"{flag_of(other)} {next(iter(legal))}" if legal and True not in legal else flag_of(other)
            for other, legal in others.items()
        )
        raise PacelineError(f"{flag_of(name)} takes no part in this training", hint=f"leave it out, or add {wanted}")


def _among(given: Mapping[str, Any], name: str, legal: Collection[Any] | None) -> bool:
    if name not in given:  # the schedule of a user's task is not known before its file is run
        return name == "schedule" and given.get("task") not in BUILT_IN
    return legal is None or given[name] in legal


def require_shared(global_batch: int, workers: int, accumulate: int = 1) -> None:
    """Refuse a batch that leaves a worker without a sample in every step: its micro-batches are what is shared.

    Raises:
        PacelineError: fewer samples than workers in a micro-batch.
    """
    least = workers * accumulate
    if global_batch >= least:
        return
    ways = [f"--global-batch {least} or more"]
    ways += [f"at most {fewer} workers"] if (fewer := global_batch // accumulate) else []
    ways += [f"--accumulate {fewer}"] if accumulate > 1 and (fewer := global_batch // workers) else []
    cut = f" in {accumulate} micro-batches" if accumulate > 1 else ""
    raise PacelineError(
        f"a global batch of {global_batch} cannot be shared by {workers} worker{'s' if workers != 1 else ''}{cut}",
        why="some would never have a sample",
        hint=", or ".join(ways),
    )
