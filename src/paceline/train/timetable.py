"""How the data are cut and the rate of each step; a batch that grows changes both. Never imports torch."""

from __future__ import annotations

import dataclasses
import math

from paceline.parallel.placement import RankEnv
from paceline.records.errors import PacelineError
from paceline.train.batch_plan import Plan, Stage, grow
from paceline.train.checks import require_shared
from paceline.train.choices import parse_fractions
from paceline.train.config import TrainConfig, required
from paceline.train.duration import Duration
from paceline.train.resolve import Recipe, updates
from paceline.train.schedules import Schedule


def timetable(config: TrainConfig, rates: Recipe, samples: int, env: RankEnv) -> tuple[Plan, Schedule]:
    """The whole run, step by step.

    Args:
        config: resolved.
        rates: what its rule makes of it.
        samples: of the training set, 1 or more.
        env: this rank's place.

    Raises:
        PacelineError: some worker would never have a sample, or the batch is to grow and never would.
    """
    batch = min(required(config.global_batch), samples)
    require_shared(batch, env.world, config.accumulate)
    plan = Plan(samples, batch, config.accumulate, config.seed, env.world, env.rank)
    at = parse_fractions(config.decay_at, "--decay-at") if config.schedule == "step" else ()
    if config.grow_batch:
        stages, late = _growth(config, plan, at)
        plan = dataclasses.replace(plan, growth=stages)
        total = plan.first_step(required(config.epochs))
        drops = tuple(plan.first_step(epoch) for epoch in late)
    else:
        asked = updates(config, samples)
        total = asked if asked is not None else required(config.epochs) * plan.steps_per_epoch
        drops = tuple(min(max(1, round(fraction * total)), max(1, total - 1)) for fraction in at)
    return plan, Schedule(
        shape=required(config.schedule),
        lr=rates.optimizer.lr,
        total_steps=total,
        warmup_steps=_warmup_steps(config, rates, plan),
        warmup_shape=config.warmup_shape,
        warmup_from=rates.warmup_from,
        cooldown_steps=round(config.cooldown * total),
        drops=drops,
        drop_factor=config.decay_factor,
    )


def _growth(config: TrainConfig, plan: Plan, at: tuple[float, ...]) -> tuple[tuple[Stage, ...], list[int]]:
    """As `grow` has it, refused where nothing would come of it."""
    epochs: int = required(config.epochs)
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


def _warmup_steps(config: TrainConfig, rates: Recipe, plan: Plan) -> int:
    length = Duration.parse(required(config.warmup), "--warmup")
    if length.in_epochs:  # what a rule does to a length in epochs leaves one in steps as it is
        length = dataclasses.replace(length, value=length.value * rates.warmup)
    return length.steps(plan.steps_per_epoch)


def rate_jump(schedule: Schedule, before: float, step: int) -> str:
    """A note where a resumed run goes on with a rate that its schedule did not lead to; empty where it does not jump.

    Args:
        schedule: of the run as it is now.
        before: the rate of the last step that was done.
        step: how many steps were done, 1 or more.
    """
    expected = schedule.at(step - 1)
    if step >= schedule.total_steps or math.isclose(before, expected, rel_tol=1e-9, abs_tol=1e-300):
        return ""
    after = schedule.at(step)
    times = f", {after / before:.3g} times as much" if before and after > before else ""
    return (
        f"the learning rate jumps: step {step:,}, the last one done, had {before:.4g}, and step {step + 1:,} has "
        f"{after:.4g}{times}. The run has another schedule now: {schedule.shape} over {schedule.total_steps:,} steps"
    )
