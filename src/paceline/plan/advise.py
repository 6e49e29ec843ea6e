"""The recommendation: batch, workers, rate and warm-up, why, and what would change it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.parallel.partition import steps_per_epoch
from paceline.plan.steps import Steps
from paceline.records.plan_results import BatchRow, Recommendation
from paceline.stats.intervals import Interval

ADAM_KIN = ("adamw", "lamb", "novograd")


def growth_of_rate(optimizer: str, gain: float, growth: float) -> float:
    """What a larger batch multiplies the base rate by: the same in a recommendation and in the branches that test it.

    Args:
        optimizer: a name of `paceline train --optimizer`.
        gain: progress of a step, in steps at the base batch.
        growth: the batch over the base batch.

    Returns:
        for Adam and its kin the root of the growth (Malladi et al. 2022, arXiv 2205.10287); for others the gain, which
        is linear far below the critical batch and less above (Johnson et al. 2020, arXiv 2007.05105).
    """
    return math.sqrt(growth) if optimizer in ADAM_KIN else gain


def name_of_growth(optimizer: str) -> str:
    """The rule of `growth_of_rate`, for people."""
    if optimizer in ADAM_KIN:
        return "the root of the batch's growth (Malladi et al. 2022)"
    return "the progress of a step: linear below the critical batch, less above (Johnson et al. 2020)"


@dataclass(frozen=True)
class Recipe:
    """The training that was measured, at the recommended batch.

    Attributes:
        flags: of `paceline train`, but for batch, workers and length.
        lr: the peak rate that comes of them.
        lr_interval: what that of the noise scale makes of it; None where it does not depend on that.
        rule: where the rate is from.
        warmup: as --warmup takes it.
        why_warmup: what a warm-up that the runs did not have is for; empty where it is theirs.
        stretch: where the rate falls over the length of a run: its length over the steps that it took. None where the
            rate stays: then only the target ends a run.
    """

    flags: tuple[str, ...]
    lr: float
    rule: str
    warmup: str
    why_warmup: str = ""
    stretch: float | None = None
    lr_interval: Interval | None = None


@dataclass(frozen=True)
class Wish:
    """What the recommendation is for.

    Attributes:
        task: as `paceline train` takes it.
        train_samples: that an epoch has.
        recipe_at: the training at a batch.
        least_efficiency: that a setting must have, see `BatchRow.efficiency`.
        target: METRIC=VALUE, for the command; None without.
    """

    task: str
    train_samples: int
    recipe_at: Callable[[int], Recipe]
    least_efficiency: float = 0.5
    target: str | None = None


def recommend(rows: Sequence[BatchRow], steps: Steps, wish: Wish) -> Recommendation | None:
    """The fastest setting of the table that is efficient enough; without times, the largest batch that is.

    Args:
        rows: that may be recommended.
        steps: they are made of.
        wish: what for.

    Returns:
        None where no row is efficient enough.
    """
    good = [row for row in rows if row.efficiency >= wish.least_efficiency]
    if not good:
        return None
    timed = [row for row in good if math.isfinite(_time(row))]
    if timed:
        best = min(timed, key=lambda row: (_time(row), row.workers))
    else:
        best = max(good, key=lambda row: (row.batch, -row.workers))
    recipe = wish.recipe_at(best.batch)
    return Recommendation(
        batch=best.batch,
        workers=best.workers if timed else None,
        lr=recipe.lr,
        rule=recipe.rule,
        warmup=recipe.warmup,
        command=_command(best, bool(timed), recipe, wish),
        because=_because(best, steps, wish, recipe),
        unless=_unless(steps, best, rows),
        lr_interval=recipe.lr_interval.estimate if recipe.lr_interval else None,
    )


def _time(row: BatchRow) -> float:
    return math.inf if row.time_s is None or row.time_s.value is None else row.time_s.value


def _command(best: BatchRow, timed: bool, recipe: Recipe, wish: Wish) -> str:
    words = ["paceline", "train", wish.task, "--global-batch", str(best.batch)]
    words += ["--workers", str(best.workers)] if timed else []
    words += [*recipe.flags, "--epochs", str(_epochs(best, recipe, wish))]
    words += ["--target", wish.target] if wish.target else []
    return shlex.join(words)


def _epochs(best: BatchRow, recipe: Recipe, wish: Wish) -> int:
    """So many that the target can be met: where the rate stays, up to the upper end of steps, since a run ends at its
    target; where it falls over the length of a run, in proportion to the run that was measured."""
    assert best.steps.value is not None
    needed = best.steps.value * (recipe.stretch or 1.0)
    if recipe.stretch is None and wish.target and best.steps.high is not None:
        needed = best.steps.high
    return max(1, math.ceil(needed / steps_per_epoch(wish.train_samples, best.batch) - 1e-9))


def _because(best: BatchRow, steps: Steps, wish: Wish, recipe: Recipe) -> list[str]:
    base = f"at a batch of {steps.base:,.0f}"
    found = [f"a sample still makes {_percent(best.statistical)} of the progress that it makes {base}"]
    if steps.branched is not None and best.batch <= steps.branched.largest:
        found = [f"branches lost nothing up to a batch of {steps.branched.largest:,}"]
    if best.system is not None:
        speed = f"computes at {_percent(best.system)} of the speed of one alone {base}"
        found.append(f"the worker {speed}" if best.workers == 1 else f"each of {best.workers} workers {speed}")
    if best.time_s is not None:
        least = _percent(wish.least_efficiency)
        found.append(f"it is the fastest setting in which a worker makes {least} of that one's progress or more")
    return found + ([recipe.why_warmup] if recipe.why_warmup else [])


def _unless(steps: Steps, best: BatchRow, rows: Sequence[BatchRow]) -> list[str]:
    found = ["the target is another: the critical batch grows as a training comes closer to its end"]
    if steps.branched is not None:
        found = ["another moment counts: branches tell what the run bore at their checkpoint, and earlier it bore less"]
    elif steps.hyperbola is None:
        found = ["a noise scale only indicates what a larger batch does: --confirm settles it with short runs"]
    found.append("the rate is tuned anew at the larger batch, or the optimizer is another")
    if best.time_s is None:
        found.append("times are known: paceline plan speed, then --speed with its directory")
    elif best.workers == max(row.workers for row in rows):
        found.append("there are more workers: the table ends here")
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
