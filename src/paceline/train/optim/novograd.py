"""NovoGrad: Adam with one second moment a layer (Ginsburg et al. 2019, arXiv 1905.11286, algorithm 1).

    v = beta2 v + (1 - beta2) |g|^2,   v = |g|^2 at first
    m = beta1 m + g / (sqrt(v) + eps) + decay w
    w = w - lr m

|g| is the norm over a whole tensor, so every tensor, biases and norms included, is divided by the size of its own
gradient; there is no ratio to the size of weights. m is a sum, not a mean: with beta1 = 0.95 a steady direction is
followed 20 times as fast as a new one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.train.optim.layerwise import GroupByGroup, norms
from paceline.train.optim.plain import Groups
from paceline.train.optim.table import Settings


class NovoGrad(GroupByGroup):
    """See the module."""

    def __init__(self, groups: Groups, settings: Settings) -> None:
        defaults = {"lr": settings.lr, "betas": settings.betas, "eps": settings.eps, "weight_decay": 0.0}
        super().__init__(groups, defaults)

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """See the module."""
        beta1, beta2 = group["betas"]
        squares = list(torch._foreach_pow(norms(grads), 2))
        for p, square in zip(params, squares, strict=True):
            if not self.state[p]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": square.clone()}
        seconds = [self.state[p]["exp_avg_sq"] for p in params]
        firsts = [self.state[p]["exp_avg"] for p in params]
        torch._foreach_lerp_(seconds, squares, 1 - beta2)  # at first it stands on |g|^2, which this leaves there
        roots = torch._foreach_sqrt(seconds)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_mul_(firsts, beta1)
        torch._foreach_add_(firsts, torch._foreach_div(grads, roots))
        if group["weight_decay"]:
            torch._foreach_add_(firsts, params, alpha=group["weight_decay"])
        torch._foreach_add_(params, firsts, alpha=-group["lr"])


def novograd(groups: Groups, settings: Settings) -> torch.optim.Optimizer:
    """NovoGrad."""
    return NovoGrad(groups, settings)
