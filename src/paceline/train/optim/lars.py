"""LARS: layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, arXiv 1708.03888).

    ratio = trust |w| / (|g| + decay |w|)             for matrices and filters; 1 for biases and norms
    buffer = momentum buffer + ratio (g + decay w)
    w = w - lr buffer

The rate stands outside the buffer, as in torch's SGD: at a constant rate that is the paper's update, and when the rate
changes (every step, during a warm-up) the buffer does not go on with the old one.

Biases and the parameters of norms get plain momentum at the same rate, as is usual.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.train.optim.layerwise import GroupByGroup, norms, trust_ratios
from paceline.train.optim.plain import Groups
from paceline.train.optim.table import Settings


class Lars(GroupByGroup):
    """See the module. A group with `adapt` False has no trust ratio."""

    def __init__(self, groups: Groups, settings: Settings) -> None:
        defaults = {
            "lr": settings.lr,
            "momentum": settings.momentum,
            "nesterov": settings.nesterov,
            "trust": settings.trust,
            "weight_decay": 0.0,
            "adapt": True,
        }
        super().__init__(groups, defaults)

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """See the module."""
        decay, momentum = group["weight_decay"], group["momentum"]
        updates = list(torch._foreach_add(grads, params, alpha=decay)) if decay else grads
        if group["adapt"]:
            weights = norms(params)
            bottoms = torch._foreach_add(norms(grads), weights, alpha=decay)
            ratios = trust_ratios(list(torch._foreach_mul(weights, group["trust"])), list(bottoms))
            updates = list(torch._foreach_mul(updates, ratios))
        if momentum:
            fresh = [p for p in params if "momentum_buffer" not in self.state[p]]
            for p in fresh:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            buffers = [self.state[p]["momentum_buffer"] for p in params]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, updates)
            updates = list(torch._foreach_add(updates, buffers, alpha=momentum)) if group["nesterov"] else buffers
        torch._foreach_add_(params, updates, alpha=-group["lr"])


def lars(groups: Groups, settings: Settings) -> torch.optim.Optimizer:
    """LARS."""
    return Lars(groups, settings)
