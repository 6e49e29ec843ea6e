"""LAMB: layer-wise adaptive moments (You et al. 2020, arXiv 1904.00962, algorithm 2, with bias correction).

    m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2      and both divided by 1 - beta^t
    u = m / (sqrt(v) + eps) + decay w
    w = w - lr |w| / |u| u                            for matrices and filters; w - lr u for biases and norms

No clipping of the global norm is hidden in it, as some libraries have it: `--clip-norm` does that where it is wanted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.train.optim.layerwise import GroupByGroup, norms, trust_ratios
from paceline.train.optim.plain import Groups
from paceline.train.optim.table import Settings


class Lamb(GroupByGroup):
    """See the module. A group with `adapt` False has no trust ratio."""

    def __init__(self, groups: Groups, settings: Settings) -> None:
        defaults = {
            "lr": settings.lr,
            "betas": settings.betas,
            "eps": settings.eps,
            "weight_decay": 0.0,
            "adapt": True,
        }
        super().__init__(groups, defaults)

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """See the module."""
        updates = self._directions(group, params, grads)
        if group["adapt"]:
            torch._foreach_mul_(updates, trust_ratios(norms(params), norms(updates)))
        torch._foreach_add_(params, updates, alpha=-group["lr"])

    def _directions(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        beta1, beta2 = group["betas"]
        for p in params:
            if not self.state[p]:
                self.state[p] = {
                    "step": torch.zeros((), dtype=torch.float32),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }
        firsts = [self.state[p]["exp_avg"] for p in params]
        seconds = [self.state[p]["exp_avg_sq"] for p in params]
        torch._foreach_lerp_(firsts, grads, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, grads, grads, 1 - beta2)
        steps = [self.state[p]["step"] for p in params]
        torch._foreach_add_(steps, 1)
        counts = [float(step) for step in steps]  # these live on the host
        roots = torch._foreach_sqrt(torch._foreach_div(seconds, [1 - beta2**t for t in counts]))
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(torch._foreach_div(firsts, [1 - beta1**t for t in counts]), roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        return list(updates)


def lamb(groups: Groups, settings: Settings) -> torch.optim.Optimizer:
    """LAMB."""
    return Lamb(groups, settings)
