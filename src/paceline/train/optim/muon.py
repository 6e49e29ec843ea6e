"""Muon for matrices and filters, AdamW for the rest, as one optimizer (Jordan et al. 2024).

    buffer = momentum buffer + (1 - momentum) g
    O = orthogonalised((1 - momentum) g + momentum buffer)
    w = (1 - lr decay) w - lr 0.2 sqrt(max(rows, columns)) O

Filters (out, in, height, width) are matrices of `out` rows here. So are embeddings and the last layer: nothing in a
model says reliably which they are. AdamW has biases and norms, with the betas and eps of `Settings`. The factor before
O makes the root mean square of a step that of AdamW's (Liu et al. 2025, arXiv 2502.16982), so one rate serves both.

torch has Muon, too (`torch.optim.Muon`), and in float32 this is its update bit for bit (tested). It takes matrices
only, though, and always orthogonalises in bfloat16, where the last bit of a sum over ranks decides about a rounding of
1/256: N ranks would not be one. In float64 this one stays in float64.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from paceline.train.optim.build import Groups
from paceline.train.optim.layerwise import closure_loss
from paceline.train.optim.table import Settings

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that is applied to singular values (Jordan et al. 2024): steepest at 0, and near 1 it stays near 1."""
ITERATIONS = 5
TINY = 1e-7


def orthogonalised(matrix: Tensor) -> Tensor:
    """The matrix with all singular values moved near 1, by Newton and Schulz's iteration.

    Args:
        matrix: (rows, columns). Singular values down to about 0.01 of its norm come out between 0.68 and 1.14.
    """
    a, b, c = COEFFICIENTS
    values = matrix if matrix.dtype == torch.float64 else matrix.bfloat16()
    tall = matrix.size(0) > matrix.size(1)
    if tall:
        values = values.T
    values = values / values.norm().clamp(min=TINY)
    for _ in range(ITERATIONS):
        gram = values @ values.T
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        values = torch.addmm(values, polynomial, values, beta=a)
    return values.T if tall else values


class MuonWithAdamW(torch.optim.Optimizer):
    """See the module. Groups with `adapt` hold what Muon steps; AdamW has the others."""

    def __init__(self, groups: Groups, settings: Settings) -> None:
        likewise = [p for group in groups for p in group["params"]]
        inner = torch.optim.AdamW(likewise, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True)
        defaults = {**inner.defaults, "momentum": settings.momentum, "adapt": True, "weight_decay": 0.0}
        super().__init__(groups, defaults)
        self._adamw = inner

    def __getstate__(self) -> dict[str, Any]:
        # torch names what a copy of an optimizer takes along; without this, AdamW would be left behind.
        return {**super().__getstate__(), "_adamw": self._adamw}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        loss = closure_loss(closure)
        for group in self.param_groups:
            if group["adapt"]:
                for p in group["params"]:
                    if p.grad is not None:
                        self._step(group, p)
        # AdamW works on our groups and our state, so that both parts are saved and loaded as one.
        self._adamw.param_groups = [group for group in self.param_groups if not group["adapt"]]
        self._adamw.state = self.state
        self._adamw.step()
        return loss

    def _step(self, group: dict[str, Any], p: Tensor) -> None:
        assert p.grad is not None
        lr, momentum = group["lr"], group["momentum"]
        if not self.state[p]:
            self.state[p] = {"momentum_buffer": torch.zeros_like(p)}
        buffer = self.state[p]["momentum_buffer"]
        buffer.lerp_(p.grad, 1 - momentum)
        ahead = p.grad.lerp(buffer, momentum).flatten(1)
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(orthogonalised(ahead).reshape(p.shape), alpha=-lr * 0.2 * math.sqrt(max(ahead.shape)))
