"""From a name and settings to an optimizer over a model's parameters.

torch's own optimizers run in their fused form where that is possible: one pass over each tensor, not one an operation.
Fused kernels are for real parameters with dense gradients. Whether a gradient is there and dense can change from step
to step, so that is looked at in each.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.optim.sgd as functional
from torch import Tensor, nn

from paceline.records.errors import PacelineError, choices
from paceline.train.optim.table import OPTIMIZERS, Settings

_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


def parameter_groups(model: nn.Module, weight_decay: float) -> Groups:
    """Frozen parameters are in it, too: the model may unfreeze them later, and without a gradient nothing moves them.

    Matrices and filters decay; biases, and whatever belongs to a norm, do not (He et al. 2019, section 3.1).

    A bias is what is called so, or what has at most one dimension. The same distinction decides what a layer-wise
    optimizer adapts: `adapt` says so in each group (You et al. 2017 leave biases and norms out of trust ratios).
    """
    norms = (module for module in model.modules() if isinstance(module, _NORMS))
    of_norms = {id(parameter) for norm in norms for parameter in norm.parameters(recurse=False)}
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not (parameter.is_floating_point() or parameter.is_complex()):
            continue
        is_bias = parameter.ndim <= 1 or name.rsplit(".", 1)[-1] == "bias"
        (kept if is_bias or id(parameter) in of_norms else decayed).append(parameter)
    groups: Groups = [
        {"params": decayed, "weight_decay": weight_decay, "adapt": True},
        {"params": kept, "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(name: str, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer `name` of the table.

    Raises:
        PacelineError: it does not take complex parameters, and the model has one.
    """
    odd = [name for name, p in model.named_parameters() if p.is_complex()]
    if odd and not OPTIMIZERS[name].complex_numbers:
        able = choices(key for key, entry in OPTIMIZERS.items() if entry.complex_numbers)
        raise PacelineError(
            f"the optimizer {name} cannot train the complex parameter {odd[0]}",
            hint=f"--optimizer with one of: {able}; or keep its real and imaginary parts as two real parameters",
        )
    module, function = OPTIMIZERS[name].factory.split(":")
    factory = getattr(importlib.import_module(module), function)
    optimizer: torch.optim.Optimizer = factory(parameter_groups(model, settings.weight_decay), settings)
    return optimizer


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
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101)."""
    return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=may_fuse(groups))


def may_fuse(groups: Groups) -> bool:
    """Whether torch's fused kernels take these parameters: none is complex."""
    return not any(p.is_complex() for group in groups for p in group["params"])
