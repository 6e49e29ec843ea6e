"""The recommendation: batch, workers, rate and warm-up, why, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.plan.steps import Steps
from paceline.records.plan import BatchRow, Recommendation

WARM_FROM = 8.0
"""A batch so many times the base batch wants a warm-up (docs/studies/ladder.md, and Goyal et al. 2017)."""
WARM_UP = "2ep"
ADAM_KIN = ("adamw", "lamb", "novograd")


@dataclass(frozen=True)
class Wish:
    """What the recommendation is for.

    Attributes:
        task: its name.
        optimizer: of the runs.
        lr: rate at the base batch.
        least_efficiency: system times statistical efficiency that a setting must have, 0 to 1.
        target: METRIC=VALUE, for the command; None without.
    """

    task: str
    optimizer: str
    lr: float
    least_efficiency: float = 0.5
    target: str | None = None


def recommend(rows: Sequence[BatchRow], steps: Steps, wish: Wish) -> Recommendation | None:
    """The fastest setting of the table that is efficient enough; without times, the largest batch that is.

    Returns:
        None where no row is efficient enough.
    """
    good = [
        row for row in rows if row.statistical * (row.system if row.system is not None else 1) >= wish.least_efficiency
    ]
    if not good:
        return None
    timed = [row for row in good if math.isfinite(_time(row))]
    if timed:
        best = min(timed, key=lambda row: (_time(row), row.workers))
    else:
        best = max(good, key=lambda row: (row.batch, -row.workers))
    growth = best.batch / steps.base
    lr, rule = _rate(wish, steps, best.batch)
    warmup = WARM_UP if growth >= WARM_FROM else "0"
    flags = [f"--global-batch {best.batch}", f"--lr {lr:.3g}", f"--warmup {warmup}"]
    flags[1:1] = [f"--workers {best.workers}"] if timed else []
    flags += [f"--optimizer {wish.optimizer}"] + ([f"--target {wish.target}"] if wish.target else [])
    return Recommendation(
        batch=best.batch,
        workers=best.workers if timed else None,
        lr=lr,
        rule=rule,
        warmup=warmup,
        command=f"paceline train {wish.task} {' '.join(flags)}",
        because=_because(best, steps, wish, growth),
        unless=_unless(steps, best, rows),
    )


def _efficiency(row: BatchRow) -> float:
    return row.statistical * (row.system if row.system is not None else 1.0)


def _time(row: BatchRow) -> float:
    return math.inf if row.time_s is None or row.time_s.value is None else row.time_s.value


def _rate(wish: Wish, steps: Steps, batch: float) -> tuple[float, str]:
    if wish.optimizer in ADAM_KIN:
        return wish.lr * math.sqrt(batch / steps.base), "the root of the batch's growth (Malladi et al. 2022)"
    growth = steps.efficiency(batch) * batch / steps.base
    return wish.lr * growth, "the progress of a step: linear below the critical batch, less above (Johnson et al. 2020)"


def _because(best: BatchRow, steps: Steps, wish: Wish, growth: float) -> list[str]:
    share = f"{100 * best.statistical:.0f} % of the progress"
    found = [f"a sample still makes {share} that it makes at a batch of {steps.base:,.0f}"]
    if best.system is not None:
        found.append(f"{best.workers} workers compute at {100 * best.system:.0f} % of what as many single ones would")
    if best.time_s is not None:
        least = f"{100 * wish.least_efficiency:.0f} %"
        found.append(f"of the settings that use at least {least} of what their workers could do, it is the fastest")
    if growth >= WARM_FROM:
        found.append(f"the batch is {growth:g} times the base: rates this much larger fail without a warm-up")
    return found


def _unless(steps: Steps, best: BatchRow, rows: Sequence[BatchRow]) -> list[str]:
    found = []
    if steps.source == "noise":
        found.append("a noise scale only indicates what a larger batch does: --confirm settles it with short runs")
    else:
        found.append("the target is another: the critical batch grows as a training comes closer to its end")
    found.append("the rate is tuned anew at the larger batch, or the optimizer is another")
    if best.time_s is None:
        found.append("times are known: paceline plan speed, then --speed with its directory")
    elif best.workers == max(row.workers for row in rows):
        found.append("there are more workers: the table ends here")
    return found
