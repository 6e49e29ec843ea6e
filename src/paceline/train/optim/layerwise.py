"""What layer-wise optimizers share: a step group by group, and the trust ratio.

All arithmetic is on whole lists of tensors (torch's foreach functions) and nothing is read back to the host, so a step
on CUDA does not wait for the device. Gradients are never written to: whoever logs their norm later sees what they were.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GroupByGroup(torch.optim.Optimizer):
    """An optimizer whose step is `step_group` of each group that has gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        loss = closure_loss(closure)
        for group in self.param_groups:
            params, grads = with_gradients(group)
            if params:
                self.step_group(group, params, grads)
        return loss

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """Update `params`; `grads` are theirs and are not written to."""
        raise NotImplementedError


def with_gradients(group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters of a group that have a gradient, and their gradients."""
    params = [p for p in group["params"] if p.grad is not None]
    return params, [p.grad for p in params]


def trust_ratios(tops: list[Tensor], bottoms: list[Tensor]) -> list[Tensor]:
    """top / bottom of each pair of norms (), and 1 where either is zero: a layer at zero must be able to leave it."""
    ones = [torch.ones_like(top) for top in tops]
    safe = [torch.where(bottom > 0, bottom, one) for bottom, one in zip(bottoms, ones, strict=True)]
    ratios = torch._foreach_div(tops, safe)
    return [
        torch.where((top > 0) & (bottom > 0), ratio, one)
        for top, bottom, ratio, one in zip(tops, bottoms, ratios, ones, strict=True)
    ]


def norms(tensors: list[Tensor]) -> list[Tensor]:
    """The Euclidean norm of each, ()."""
    return list(torch._foreach_norm(tensors))


def closure_loss(closure: Any) -> Any:
    """What torch's interface wants of `step(closure)`."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
