"""The recommended training: that of the runs at another batch, with their rates; that of one run with a scaled one.

Which flags make a training like another is known to a layer beside this one, so that two functions of it are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.plan.advise import Recipe, growth_of_rate, name_of_growth
from paceline.plan.rows import train_info
from paceline.plan.steps import Steps
from paceline.records.plan_results import BatchPoint
from paceline.records.schema import RunInfo

WARM_FROM = 8.0
"""A batch so many times the base batch wants a warm-up (docs/studies/ladder.md, and Goyal et al. 2017)."""
WARM_UP = "2ep"


@dataclass(frozen=True)
class TrainSettings:
    """What `paceline train` knows of its settings.

    Attributes:
        used: of run.json, by field name: what a training's scaling rule made of its settings; `lr` in any case.
        flags: (config of run.json, changes by field name) -> those of a training like that one, but for its length,
            target and evaluations.
    """

    used: Callable[[RunInfo], Mapping[str, Any]]
    flags: Callable[..., tuple[str, ...]]


def of_runs(runs: Sequence[BatchPoint], batch: int, settings: TrainSettings) -> Recipe:
    """The training of the run with the nearest batch, with a rate from all of them.

    Args:
        runs: that met the target, at two batches or more.
        batch: samples a step.
        settings: of `paceline train`.
    """
    nearest = min(runs, key=lambda one: (abs(math.log(one.batch / batch)), one.seed))
    infos = {one.run: train_info(Path(one.run)) for one in runs}
    rates = [(one.batch, _peak_rate(infos[one.run])) for one in runs]
    info = infos[nearest.run]
    name = str(info.config.get("lr_rule") or "none")
    changes = _without_its_batch(info)
    if name != "none" and len({_rate_settings(each) for each in infos.values()}) == 1:
        lr = _by_power(rates, batch)
        rule = f"that of the runs: --lr-rule {name} from a batch of {int(info.config['base_batch']):,}"
    else:
        lr, rule = _between(rates, batch)
        changes |= {**settings.used(info), "lr": float(f"{lr:.4g}"), "lr_rule": None, "base_batch": None}
    assert nearest.steps is not None
    return Recipe(
        flags=settings.flags(info.config, **changes),
        lr=lr,
        rule=rule,
        warmup=str(info.config.get("warmup") or "0"),
        stretch=_stretch(info, nearest.steps),
    )


def of_one(info: RunInfo, steps: Steps, batch: int, settings: TrainSettings) -> Recipe:
    """The run's own training, with its rate scaled to the batch; with a warm-up where a far larger batch needs one.

    Args:
        info: of the run.
        steps: from its noise.
        batch: samples a step.
        settings: of `paceline train`.
    """
    growth = batch / steps.base
    optimizer = str(info.config.get("optimizer") or "sgd")
    used = settings.used(info)
    peak = float(used["lr"] or 0.0)
    lr = steps.gain(batch).map(lambda gain: peak * growth_of_rate(optimizer, gain, growth))
    warmup, why = str(info.config.get("warmup") or "0"), ""
    if growth >= WARM_FROM and not any(digit in warmup for digit in "123456789"):
        warmup = WARM_UP
        why = f"the batch is {growth:g} times the base: rates this much larger fail without a warm-up"
    changes = {**_without_its_batch(info), **used, "warmup": warmup}
    changes |= {"lr": float(f"{lr.value:.4g}"), "lr_rule": None, "base_batch": None}
    return Recipe(
        flags=settings.flags(info.config, **changes),
        lr=lr.value,
        lr_interval=lr if lr.high > lr.low else None,
        rule=name_of_growth(optimizer),
        warmup=warmup,
        why_warmup=why,
        stretch=_stretch(info, steps.base_steps),
    )


def _without_its_batch(info: RunInfo) -> dict[str, Any]:
    """Changes that leave out batch, length and seed, and that keep what recipes for shorter trainings leave out."""
    config = info.config
    every = str(config.get("eval_every") or "")
    return {
        "global_batch": None,
        "accumulate": None,
        "keep_updates": None,
        "seed": None,
        "warmup": config.get("warmup"),
        "train_samples": config.get("train_samples"),
        "init_from": config.get("init_from"),
        "patience": config["patience"] if config.get("patience", 1) != 1 else None,
        # So many steps would be another number of samples at another batch.
        "eval_every": every if every.endswith("ep") and every != "1ep" else None,
    }


def _stretch(info: RunInfo, steps: float) -> float | None:
    if info.config.get("schedule") in (None, "constant") or info.task is None or not steps:
        return None
    return max(1.0, info.task.total_steps / steps)


def _rate_settings(info: RunInfo) -> tuple[Any, ...]:
    return tuple(info.config.get(name) for name in ("lr_rule", "base_batch", "lr"))


def _peak_rate(info: RunInfo) -> float:
    return float(info.facts.get("lr", info.config.get("lr") or 0.0))


def _by_power(rates: Sequence[tuple[int, float]], batch: int) -> float:
    """The rate of a rule, which is a power of the batch, from (batch, rate) of the smallest and the largest."""
    (smallest, low), (largest, high) = min(rates), max(rates)
    if min(low, high) <= 0:
        return low
    exponent = math.log(high / low) / math.log(largest / smallest)
    return low * math.exp(exponent * math.log(batch / smallest))


def _between(of_runs: Sequence[tuple[int, float]], batch: int) -> tuple[float, str]:
    """The rate of the runs at this batch, or in between, along a straight line in the logarithms; and what it is."""
    rates: dict[int, list[float]] = {}
    for size, rate in of_runs:
        rates.setdefault(size, []).append(math.log(max(rate, 1e-30)))
    sizes = sorted(rates)
    means = [sum(rates[size]) / len(rates[size]) for size in sizes]
    lr = math.exp(float(np.interp(math.log(batch), [math.log(size) for size in sizes], means)))
    if max(means) - min(means) < 1e-9:
        return lr, "that of all runs"
    if batch in rates:
        return lr, "that of the runs at this batch"
    if sizes[0] < batch < sizes[-1]:
        return lr, "between those of the runs at the next smaller and the next larger batch"
    end = sizes[0] if batch < sizes[0] else sizes[-1]
    return lr, f"that of the runs at a batch of {end:,}: none at a larger one met the target"
