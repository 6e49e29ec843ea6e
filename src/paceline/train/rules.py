"""What else changes when the batch grows k times: scaling rules as pure functions. Nothing here imports torch.

    rule       rate        betas             eps        decay beside it   warm-up
    none       lr          -                 -          -                 -
    linear     k lr        -                 -          -                 -
    sqrt       sqrt(k) lr  -                 -          sqrt(k) wd        -
    adam-sde   sqrt(k) lr  1 - k (1 - beta)  / sqrt(k)  sqrt(k) wd        -
    legw       sqrt(k) lr  -                 -          sqrt(k) wd        k times the epochs

Three things follow from what a setting means, whatever the rule:

- **Momentum of SGD stays.** Its horizon is counted in steps, and the rules above were found with it unchanged.
- **Weight decay that is added to the gradient is part of the loss**, so it stays (SGD, LARS). Decay that stands beside
  the gradient (AdamW, Muon), or is added to it only after it was normalised (LAMB, NovoGrad), shrinks weights in
  proportion to rate x decay a step; per epoch that is kept: with k times fewer steps and a rate of k lr the decay is
  kept as it is, with sqrt(k) lr it grows by sqrt(k).
- **Averages over steps keep their horizon in samples**: the decay d of a moving average of weights becomes d^k, a batch
  norm's running momentum m becomes 1 - (1 - m)^k, or with k / a for k where a batch is cut into a micro-batches, for
  each of which it moves once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.records.errors import PacelineError
from paceline.train.optim.table import Settings


@dataclass(frozen=True)
class Rule:
    """One scaling rule.

    Attributes:
        apply: (settings, k, decoupled) -> settings, where k = batch / base batch, above 0; see `scale`.
        adam_only: it was derived for Adam and says nothing of others.
        longer_warmup: it makes the warm-up k times as long, in epochs.
    """

    apply: Callable[[Settings, float, bool], Settings]
    adam_only: bool = False
    longer_warmup: bool = False


def _linear(settings: Settings, k: float, decoupled: bool) -> Settings:
    """Goyal et al. 2017, arXiv 1706.02677: k steps of a rate are about one step of k times the rate."""
    del decoupled
    return dataclasses.replace(settings, lr=k * settings.lr)


def _sqrt(settings: Settings, k: float, decoupled: bool) -> Settings:
    """Krizhevsky 2014, arXiv 1404.5997: keeps the variance of a step that gradient noise causes."""
    root = math.sqrt(k)
    decay = root * settings.weight_decay if decoupled else settings.weight_decay
    return dataclasses.replace(settings, lr=root * settings.lr, weight_decay=decay)


def _adam_sde(settings: Settings, k: float, decoupled: bool) -> Settings:
    """Malladi et al. 2022, arXiv 2205.10287: keeps the stochastic differential equation that Adam follows.

    Its betas are only those of an average while k (1 - beta) is below 1, hence the limit.
    """
    first, second = settings.betas
    limit = min(1 / (1 - first), 1 / (1 - second))
    if not k < limit * (1 - 1e-12):  # 1 / (1 - 0.9) is a hair above 10 in floating point
        raise PacelineError(
            f"--lr-rule adam-sde cannot scale the batch {k:g} times",
            why=f"its betas become 1 - k (1 - beta), above 0 only for k < {limit:g} at betas {first:g}, {second:g}",
            hint=f"a --global-batch below {limit:g} times --base-batch, larger betas, or --lr-rule sqrt",
        )
    betas = (1 - k * (1 - first), 1 - k * (1 - second))
    return dataclasses.replace(_sqrt(settings, k, decoupled), betas=betas, eps=settings.eps / math.sqrt(k))


RULES: dict[str, Rule] = {
    "none": Rule(lambda settings, k, decoupled: settings),
    "linear": Rule(_linear),
    "sqrt": Rule(_sqrt),
    "adam-sde": Rule(_adam_sde, adam_only=True),
    "legw": Rule(_sqrt, longer_warmup=True),  # linear-epoch gradual warm-up: You et al. 2019, arXiv 1901.08256
}


def scale(rule: str, settings: Settings, k: float, *, decoupled: bool = False) -> Settings:
    """The settings of an optimizer for a batch of k times the base batch.

    Args:
        rule: a name of `RULES`.
        settings: of the base batch.
        k: above 0.
        decoupled: whether weight decay is no part of the gradient of the loss (AdamW, Muon, LAMB, NovoGrad).

    Raises:
        PacelineError: k is outside the range in which the rule holds.
    """
    return RULES[rule].apply(settings, k, decoupled)


def keep_horizon(decay: float, k: float) -> float:
    """The decay d of a moving average over steps, so that it forgets as fast per sample: d^k.

    Args:
        decay: 0 <= d <= 1, the weight of what was.
        k: batch / base batch.
    """
    return float(decay**k)


def keep_momentum(momentum: float, k: float) -> float:
    """Likewise for torch's batch norm, whose momentum m is the weight of what is new: 1 - (1 - m)^k."""
    return 1.0 - keep_horizon(1.0 - momentum, k)
