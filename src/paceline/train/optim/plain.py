"""torch's own optimizers, in their fused form where that is possible: one pass over each tensor, not one an operation.

Fused kernels are for real parameters with dense gradients. Whether a gradient is there and dense can change from step
to step, so that is looked at in each.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.optim.sgd as functional
from torch import Tensor

from paceline.train.optim.table import Settings

Groups = list[dict[str, Any]]


class MomentumSGD(torch.optim.SGD):
    """torch's SGD, also where a parameter's first gradient comes later than others', and where gradients are sparse."""

    _buffers: dict[int, Tensor | None]
    """Momentum by the id of its parameter: asking `state`, which hashes tensors, costs as much as the update."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._buffers = {}
        super().__init__(*args, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over another's state: of a copy, and in load_state_dict."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._buffers = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        if closure is not None or not self.defaults["fused"]:
            return super().step(closure)
        for group in self.param_groups:
            dense: list[Tensor] = []
            sparse: list[Tensor] = []
            for p in group["params"]:
                if p.grad is not None:
                    (sparse if p.grad.is_sparse else dense).append(p)
            self._update(dense, group, fused=True)
            if sparse:
                self._update(sparse, group, fused=False)
        return None

    def _update(self, parameters: list[Tensor], group: dict[str, Any], *, fused: bool) -> None:
        momentum = group["momentum"]
        gradients: list[Any] = [p.grad for p in parameters]
        buffers: list[Any] = [self._buffer(p, fused=fused) if momentum else None for p in parameters]
        functional.sgd(
            parameters,
            gradients,
            buffers,
            has_sparse_grad=not fused,
            fused=fused,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            momentum=momentum,
            nesterov=group["nesterov"],
            dampening=0.0,
            maximize=False,
        )
        if momentum and not fused:
            for p, buffer in zip(parameters, buffers, strict=True):
                self.state[p]["momentum_buffer"] = self._buffers[id(p)] = buffer

    def _buffer(self, parameter: Tensor, *, fused: bool) -> Tensor | None:
        """The kernel takes a momentum of all parameters or of none. From zero it makes what torch begins with."""
        if id(parameter) not in self._buffers:
            state = self.state[parameter]
            if fused and state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            self._buffers[id(parameter)] = state.get("momentum_buffer")
        return self._buffers[id(parameter)]


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
