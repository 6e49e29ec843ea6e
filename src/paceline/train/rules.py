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


@dataclass(frozen=True)
class Hyper:
    """The settings that rules act on.

    Attributes:
        lr: peak learning rate.
        betas: of Adam and its kin.
        eps: likewise.
        weight_decay: of matrices and filters.
        beside: whether the decay is no part of the gradient that the optimizer takes for the loss's.
        warmup: factor on the warm-up's length in epochs.
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    beside: bool = False
    warmup: float = 1.0


@dataclass(frozen=True)
class Rule:
    """One scaling rule.

    Attributes:
        title: one line for people.
        apply: (hyper, k) -> hyper, where k = batch / base batch, above 0.
        adam_only: it was derived for Adam and says nothing of others.
    """

    title: str
    apply: Callable[[Hyper, float], Hyper]
    adam_only: bool = False


def _none(hyper: Hyper, k: float) -> Hyper:
    del k
    return hyper


def _linear(hyper: Hyper, k: float) -> Hyper:
    """Goyal et al. 2017, arXiv 1706.02677: k steps of a rate are about one step of k times the rate."""
    return dataclasses.replace(hyper, lr=k * hyper.lr)


def _sqrt(hyper: Hyper, k: float) -> Hyper:
    """Krizhevsky 2014, arXiv 1404.5997: keeps the variance of a step that gradient noise causes."""
    root = math.sqrt(k)
    decay = root * hyper.weight_decay if hyper.beside else hyper.weight_decay
    return dataclasses.replace(hyper, lr=root * hyper.lr, weight_decay=decay)


def _adam_sde(hyper: Hyper, k: float) -> Hyper:
    """Malladi et al. 2022, arXiv 2205.10287: keeps the stochastic differential equation that Adam follows.

    Its betas are only those of an average while k (1 - beta) is below 1, hence the limit.
    """
    first, second = hyper.betas
    limit = min(1 / (1 - first), 1 / (1 - second))
    if not k < limit * (1 - 1e-12):  # 1 / (1 - 0.9) is a hair above 10 in floating point
        raise PacelineError(
            f"--lr-rule adam-sde cannot scale the batch {k:g} times",
            why=f"its betas become 1 - k (1 - beta), above 0 only for k < {limit:g} at betas {first:g}, {second:g}",
            hint=f"a --global-batch below {limit:g} times --base-batch, larger betas, or --lr-rule sqrt",
        )
    scaled = _sqrt(hyper, k)
    return dataclasses.replace(scaled, betas=(1 - k * (1 - first), 1 - k * (1 - second)), eps=hyper.eps / math.sqrt(k))


def _legw(hyper: Hyper, k: float) -> Hyper:
    """You et al. 2019, arXiv 1901.08256 (linear-epoch gradual warm-up): the root, and k times the epochs of warm-up."""
    return dataclasses.replace(_sqrt(hyper, k), warmup=k * hyper.warmup)


RULES: dict[str, Rule] = {
    "none": Rule("the rate as it is given", _none),
    "linear": Rule("k times the rate for k times the batch (Goyal et al. 2017)", _linear),
    "sqrt": Rule("sqrt(k) times the rate (Krizhevsky 2014)", _sqrt),
    "adam-sde": Rule(
        "for Adam: rate, betas and eps together (Malladi et al. 2022); k < 1/(1 - beta1)", _adam_sde, True
    ),
    "legw": Rule("sqrt(k) times the rate, k times the epochs of warm-up (You et al. 2019)", _legw),
}


def scale(rule: str, hyper: Hyper, k: float) -> Hyper:
    """`hyper` for a batch of k times the base batch.

    Args:
        rule: a name of `RULES`.
        hyper: of the base batch.
        k: above 0.

    Raises:
        PacelineError: k is outside the range in which the rule holds.
    """
    return RULES[rule].apply(hyper, k)


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
