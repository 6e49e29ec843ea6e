"""What cannot be right is refused by name, with the legal range, before anything is started. Never imports torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from paceline.records.errors import PacelineError, choices
from paceline.records.target import parse_target
from paceline.tasks.table import BUILT_IN
from paceline.train.config import TrainConfig
from paceline.train.optim.table import OPTIMIZERS


def check(config: TrainConfig) -> None:
    """Refuse what cannot be right.

    Raises:
        PacelineError: naming the flag, the value and the legal values.
    """
    config.check_fields()
    if config.target is not None:
        parse_target(config.target)
    if config.optimizer is not None:
        check_taken(config, config.optimizer)
    _check_together(config)


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
            f"{optimizer} does not take {config.flag(name)}", hint=f"leave it out; those that do: {choices(others)}"
        )


def _check_together(config: TrainConfig) -> None:
    """Rules about several settings."""
    if config.epochs is not None and config.steps is not None:
        raise PacelineError("--epochs and --steps were both given", hint="leave one of them out")
    for name in ("keep_updates", "grow_batch"):
        if getattr(config, name) and config.steps is not None:
            raise PacelineError(f"{config.flag(name)} needs a length in epochs", hint="--epochs instead of --steps")
    if config.keep_updates and config.grow_batch:
        raise PacelineError(
            "--keep-updates and --grow-batch exclude each other",
            why="one keeps the number of steps, the other lowers it on purpose",
            hint="leave one of them out",
        )
    if config.grow_batch and config.schedule not in (None, "step"):
        raise PacelineError(
            "--grow-batch needs drops of the rate to take the place of", hint="--schedule step, with --decay-at"
        )
    if config.warmup_shape == "constant" and config.warmup_from == 0:
        raise PacelineError("a constant warm-up from 0 would not train", hint="--warmup-from 0.1, or leave it out")


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
            f"{TrainConfig.flag(other)} {next(iter(legal))}" if legal and True not in legal else TrainConfig.flag(other)
            for other, legal in others.items()
        )
        raise PacelineError(
            f"{TrainConfig.flag(name)} takes no part in this training", hint=f"leave it out, or add {wanted}"
        )


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
