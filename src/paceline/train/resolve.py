"""From what the user gave to what the run uses: defaults filled in, then the settings for the batch at hand, then how
the data are cut and the rate of each step. Never imports torch."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from paceline.parallel.partition import steps_per_epoch
from paceline.parallel.placement import RankEnv
from paceline.records.errors import PacelineError
from paceline.settings.declare import required_of
from paceline.settings.legal import one_of
from paceline.tasks.table import Defaults
from paceline.train.batch_plan import Plan, Stage, grow
from paceline.train.checks import check, check_taken, require_shared
from paceline.train.choices import parse_fractions
from paceline.train.config import TrainConfig
from paceline.train.optim.table import OPTIMIZERS, Settings
from paceline.train.rules import RULES, keep_horizon, keep_momentum, scale
from paceline.train.schedules import Duration, Schedule


@dataclass(frozen=True, kw_only=True)
class ResolvedTraining(TrainConfig):
    """Settings of a run with the defaults of its task and optimizer filled in; run.json holds them."""

    global_batch: int = required_of(TrainConfig, "global_batch")
    base_batch: int = required_of(TrainConfig, "base_batch")
    lr: float = required_of(TrainConfig, "lr")
    schedule: str = required_of(TrainConfig, "schedule")
    warmup: str = required_of(TrainConfig, "warmup")
    optimizer: str = required_of(TrainConfig, "optimizer")
    weight_decay: float = required_of(TrainConfig, "weight_decay")
    momentum: float = required_of(TrainConfig, "momentum")

    @property
    def length(self) -> Duration:
        """Of the run, in the unit in which it was given; with --keep-updates in epochs of the base batch."""
        if self.steps is not None:
            return Duration(self.steps, in_epochs=False)
        if self.epochs is None:
            raise AssertionError("a run has a length in steps or in epochs")
        return Duration(self.epochs, in_epochs=True)

    @property
    def optimizer_settings(self) -> Settings:
        """Before any scaling rule."""
        given: dict[str, Any] = {}
        if self.beta1 is not None and self.beta2 is not None:
            given["betas"] = (self.beta1, self.beta2)
        given |= {name: value for name in ("eps", "trust") if (value := getattr(self, name)) is not None}
        return Settings(self.lr, self.momentum, self.nesterov, self.weight_decay, **given)


def resolve(config: TrainConfig, defaults: Defaults) -> ResolvedTraining:
    """Fill in the task's and the optimizer's defaults, then check again what only now is known.

    Raises:
        PacelineError: a default is out of range, or the task's optimizer does not take what was given.
    """
    name = defaults.optimizer if config.optimizer is None else config.optimizer
    one_of("--optimizer", name, OPTIMIZERS)
    entry = OPTIMIZERS[name]
    check_taken(config, name)
    own = name == defaults.optimizer
    betas = entry.betas if "betas" in entry.takes else (None, None)
    fallback = {
        "optimizer": name,
        "global_batch": defaults.global_batch,
        "base_batch": defaults.global_batch,
        "epochs": defaults.epochs if config.steps is None else None,
        "lr": defaults.lr if own else entry.lr,
        "momentum": (defaults if own else entry).momentum if "momentum" in entry.takes else 0.0,
        "beta1": betas[0],
        "beta2": betas[1],
        "eps": entry.eps if "eps" in entry.takes else None,
        "trust": entry.trust if "trust" in entry.takes else None,
        "weight_decay": defaults.weight_decay,
        "schedule": defaults.schedule,
        "warmup": defaults.warmup,
    }
    open_ = {name: value for name, value in fallback.items() if getattr(config, name) is None}
    filled = ResolvedTraining(**{**vars(config), **open_})
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


def recipe(config: ResolvedTraining, samples: float = math.inf) -> Recipe:
    """The numbers for the batch at hand, by the rule of the settings.

    Args:
        config: the settings.
        samples: of the training set, more than which no batch has.

    Raises:
        PacelineError: the rule does not reach so far, or a constant warm-up has no rate to hold.
    """
    k = min(config.global_batch, samples) / config.base_batch
    base = config.optimizer_settings
    scaled = scale(config.lr_rule, base, k, decoupled=OPTIMIZERS[config.optimizer].decay != "coupled")
    ruled = config.lr_rule != "none"
    return Recipe(
        growth=k,
        micro_growth=k / config.accumulate,
        optimizer=scaled,
        warmup=k if RULES[config.lr_rule].longer_warmup else 1.0,
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


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained, in numbers.

    Attributes:
        config: the settings.
        rates: what the scaling rule makes of them.
        batches: how the data are cut.
        schedule: the rate of each step.
    """

    config: ResolvedTraining
    rates: Recipe
    batches: Plan
    schedule: Schedule


def plan_training(config: TrainConfig, defaults: Defaults, samples: int, env: RankEnv) -> TrainingPlan:
    """Fill in the defaults of a task, and plan the whole run step by step.

    Args:
        config: as the user gave it.
        defaults: of the task.
        samples: of the training set, 1 or more.
        env: this rank's place.

    Raises:
        PacelineError: a setting or a default is out of range, some worker would never have a sample, or the batch is
            to grow and never would.
    """
    resolved = resolve(config, defaults)
    rates = recipe(resolved, samples)
    batch = min(resolved.global_batch, samples)
    require_shared(batch, env.world, resolved.accumulate)
    plan = Plan(samples, batch, resolved.accumulate, resolved.seed, env.world, env.rank)
    at = parse_fractions(resolved.decay_at, "--decay-at") if resolved.schedule == "step" else ()
    if resolved.grow_batch:
        epochs = int(resolved.length.value)
        stages, late = _growth(resolved, plan, epochs, at)
        plan = dataclasses.replace(plan, growth=stages)
        total = plan.first_step(epochs)
        drops = tuple(plan.first_step(epoch) for epoch in late)
    else:
        counted = resolved.base_batch if resolved.keep_updates else batch
        total = resolved.length.steps(steps_per_epoch(samples, counted))
        drops = tuple(min(max(1, round(fraction * total)), max(1, total - 1)) for fraction in at)
    warmup = Duration.parse(resolved.warmup, "--warmup")
    if warmup.in_epochs:  # what a rule does to a length in epochs leaves one in steps as it is
        warmup = dataclasses.replace(warmup, value=warmup.value * rates.warmup)
    schedule = Schedule(
        shape=resolved.schedule,
        lr=rates.optimizer.lr,
        total_steps=total,
        warmup_steps=warmup.steps(plan.steps_per_epoch),
        warmup_shape=resolved.warmup_shape,
        warmup_from=rates.warmup_from,
        cooldown_steps=round(resolved.cooldown * total),
        drops=drops,
        drop_factor=resolved.decay_factor,
    )
    return TrainingPlan(resolved, rates, plan, schedule)


def _growth(config: TrainConfig, plan: Plan, epochs: int, at: tuple[float, ...]) -> tuple[tuple[Stage, ...], list[int]]:
    """As `grow` has it, refused where nothing would come of it."""
    asked = config.max_batch if config.max_batch is not None else plan.samples // 10
    most = min(asked, plan.samples)
    stages, late = grow(plan, epochs, at, config.decay_factor, most)
    if epochs == 1:
        raise PacelineError("--grow-batch needs two epochs: the batch grows between them", hint="--epochs 2 or more")
    if not stages:
        limit = f"--max-batch {asked:,}" if config.max_batch is not None else "a tenth of the training set"
        raise PacelineError(
            f"--grow-batch would leave the batch at {plan.global_batch:,} throughout",
            why=f"its first growth would make it {round(plan.global_batch / config.decay_factor):,}, "
            f"and the most is {most:,} ({limit if most == asked else 'the training set'})",
            hint="a larger --max-batch, another --decay-factor (0.5 doubles the batch), or leave --grow-batch out",
        )
    for stage in stages:
        require_shared(stage.global_batch, plan.world, stage.accumulation)
    return stages, late
