"""torch's own optimizers, in their fused form where that is possible: one pass over each tensor, not one an operation.

Fused kernels are for real parameters with dense gradients. Whether a gradient is there and dense can change from step
to step, so that is looked at in each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.train.optim.table import Settings

Groups = list[dict[str, Any]]


class MomentumSGD(torch.optim.SGD):
    """torch's SGD, also where a parameter's first gradient comes later than others', and where gradients are sparse."""

    _begun: frozenset[int] | set[int] = frozenset()
    """Parameters (their ids) that are known to have a momentum: asking `state` for each costs more than the update."""

    def load_state_dict(self, state_dict: Any) -> None:
        """Take over another optimizer's state."""
        super().load_state_dict(state_dict)
        self._begun = set()

    def step(self, closure: Any = None) -> Any:
        """One update."""
        sparse: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            for p in group["params"]:
                gradient = p.grad
                if gradient is None:
                    continue
                if gradient.is_sparse:
                    sparse.append((p, gradient))
                elif id(p) not in self._begun:
                    self._begin(p, group["momentum"])
        for p, _ in sparse:
            p.grad = None
        loss = super().step(closure)
        if sparse:
            self._step_sparse(sparse)
        return loss

    def _begin(self, parameter: Tensor, momentum: float) -> None:
        """The fused kernel takes buffers for all or for none. From zero it makes what torch begins with."""
        if momentum and "momentum_buffer" not in self.state[parameter]:
            self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self._begun = {*self._begun, id(parameter)}

    def _step_sparse(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """The same for sparse gradients, by torch's plain loop."""
        dense = [(p, p.grad) for group in self.param_groups for p in group["params"] if p.grad is not None]
        fused = [group["fused"] for group in self.param_groups]
        try:
            for p, _ in dense:
                p.grad = None
            for p, gradient in pairs:
                p.grad = gradient
            for group in self.param_groups:
                group["fused"] = False
            super().step()
        finally:
            for group, was in zip(self.param_groups, fused, strict=True):
                group["fused"] = was
            for p, gradient in dense:
                p.grad = gradient


def sgd(groups: Groups, settings: Settings) -> torch.optim.Optimizer:
    """SGD. Momentum as torch has it: the buffer holds gradients, the rate is applied after."""
    momentum, nesterov = settings.momentum, settings.nesterov
    return MomentumSGD(groups, lr=settings.lr, momentum=momentum, nesterov=nesterov, fused=may_fuse(groups))


def adamw(groups: Groups, settings: Settings) -> torch.optim.Optimizer:
    """AdamW."""
    return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=may_fuse(groups))


def may_fuse(groups: Groups) -> bool:
    """Whether torch's fused kernels take these parameters: none is complex."""
    return not any(p.is_complex() for group in groups for p in group["params"])
