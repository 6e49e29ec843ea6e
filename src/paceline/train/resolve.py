"""From what the user gave to what the run uses: defaults filled in, then the settings for the batch at hand."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from paceline.parallel.partition import steps_per_epoch
from paceline.records.errors import PacelineError
from paceline.settings.legal import one_of
from paceline.tasks.table import Defaults
from paceline.train.checks import check, check_taken
from paceline.train.config import TrainConfig, required
from paceline.train.duration import Duration
from paceline.train.optim.table import OPTIMIZERS, Settings
from paceline.train.rules import RULES, Hyper, keep_horizon, keep_momentum, scale


def resolve(config: TrainConfig, defaults: Defaults) -> TrainConfig:
    """Fill in the task's and the optimizer's defaults, then check again what only now is known.

    Raises:
        PacelineError: a default is out of range, or the task's optimizer does not take what was given.
    """
    name = _or(config.optimizer, defaults.optimizer)
    one_of("--optimizer", name, OPTIMIZERS)
    entry = OPTIMIZERS[name]
    check_taken(config, name)
    own = name == defaults.optimizer
    momentum = defaults.momentum if own else entry.momentum
    filled = dataclasses.replace(
        config,
        optimizer=name,
        global_batch=_or(config.global_batch, defaults.global_batch),
        base_batch=_or(config.base_batch, defaults.global_batch),
        epochs=config.epochs if config.steps is not None else _or(config.epochs, defaults.epochs),
        lr=_or(config.lr, defaults.lr if own else entry.lr),
        momentum=_or(config.momentum, momentum if "momentum" in entry.takes else 0.0),
        beta1=_or(config.beta1, entry.betas[0] if "betas" in entry.takes else None),
        beta2=_or(config.beta2, entry.betas[1] if "betas" in entry.takes else None),
        eps=_or(config.eps, entry.eps if "eps" in entry.takes else None),
        trust=_or(config.trust, entry.trust if "trust" in entry.takes else None),
        weight_decay=_or(config.weight_decay, defaults.weight_decay),
        schedule=_or(config.schedule, defaults.schedule),
        warmup=_or(config.warmup, defaults.warmup),
    )
    check(filled)
    _check_warmup(config, defaults)
    if filled.nesterov and not filled.momentum:
        raise PacelineError("--nesterov needs a momentum", hint="--momentum 0.9")
    if filled.monitor == "sharpness" and name != "sgd":
        raise PacelineError(
            f"--monitor sharpness does not know what {name} bears",
            why="the limit of stability is known for gradient descent and its momenta",
            hint="--optimizer sgd; paceline landscape measures the sharpness of any run",
        )
    if RULES[filled.lr_rule].adam_only and not entry.adam:
        others = ", ".join(other for other, each in OPTIMIZERS.items() if each.adam)
        raise PacelineError(
            f"--lr-rule {filled.lr_rule} does not hold for {name}",
            why="it was derived from the equations that Adam follows",
            hint=f"--optimizer {others}, or --lr-rule sqrt",
        )
    return filled


def _check_warmup(config: TrainConfig, defaults: Defaults) -> None:
    """Refuse settings of a warm-up that neither was asked for nor is the task's own."""
    if config.warmup is not None or Duration.parse(defaults.warmup, "--warmup").value:
        return
    for name in ("warmup_from", "warmup_shape"):
        if getattr(config, name) != getattr(TrainConfig, name):
            raise PacelineError(
                f"{config.flag(name)} takes no part in this training",
                why="the task has no warm-up of its own",
                hint="--warmup 200 or --warmup 1ep, or leave it out",
            )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


@dataclass(frozen=True)
class Recipe:
    """What the run really trains with, after the rule.

    Attributes:
        growth: k, the global batch over the base batch.
        micro_growth: likewise of a micro-batch, k / --accumulate: a batch norm's statistics move once for each.
        optimizer: settings at the peak.
        warmup: factor on the length of the warm-up, where that is given in epochs; LEGW's k times the epochs are just
            as many steps as before, so one in steps stays.
        warmup_from: where the warm-up begins, as a part of the peak.
        ema_decay: the weight of what was, at each step.
        horizon: whether averages over steps were made to keep their horizon in samples.
    """

    growth: float
    micro_growth: float
    optimizer: Settings
    warmup: float
    warmup_from: float
    ema_decay: float
    horizon: bool

    def bn_momentum(self, own: float) -> float:
        """The running momentum of a batch norm that has `own`."""
        return keep_momentum(own, self.micro_growth) if self.horizon else own


def recipe(config: TrainConfig, samples: float = math.inf) -> Recipe:
    """Of a resolved config: its numbers for the batch at hand, by its rule.

    Args:
        config: resolved.
        samples: of the training set, more than which no batch has.

    Raises:
        PacelineError: the rule does not reach so far, or a constant warm-up has no rate to hold.
    """
    k = min(required(config.global_batch), samples) / required(config.base_batch)
    given = config.optimizer_settings
    base = Hyper(
        lr=given.lr,
        betas=given.betas,
        eps=given.eps,
        weight_decay=given.weight_decay,
        beside=OPTIMIZERS[required(config.optimizer)].decay != "coupled",
    )
    scaled = scale(config.lr_rule, base, k)
    ruled = config.lr_rule != "none"
    return Recipe(
        growth=k,
        micro_growth=k / config.accumulate,
        optimizer=dataclasses.replace(
            given, lr=scaled.lr, betas=scaled.betas, eps=scaled.eps, weight_decay=scaled.weight_decay
        ),
        warmup=scaled.warmup,
        warmup_from=_warmup_from(config, base.lr, scaled.lr),
        ema_decay=keep_horizon(config.ema_decay, k) if ruled else config.ema_decay,
        horizon=ruled,
    )


def _warmup_from(config: TrainConfig, base: float, peak: float) -> float:
    if config.warmup_from is not None:
        return config.warmup_from
    if config.warmup_shape == "linear":
        return 0.0
    if config.lr_rule == "none" or peak <= base:
        raise PacelineError(
            "a constant warm-up needs a rate to hold",
            why="without a rule for the rate there is no lower one to begin with",
            hint="--warmup-from 0.1 (of the peak), or --lr-rule linear with a larger batch",
        )
    return base / peak


def updates(config: TrainConfig, samples: int) -> int | None:
    """The number of steps, where it does not follow from the epochs alone: --steps, or --keep-updates."""
    if config.steps is not None:
        return config.steps
    if config.keep_updates:
        epochs: int = required(config.epochs)
        return epochs * steps_per_epoch(samples, required(config.base_batch))
    return None
