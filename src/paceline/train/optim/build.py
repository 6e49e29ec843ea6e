"""From a name and settings to an optimizer over a model's parameters."""

from __future__ import annotations

import importlib

import torch
from torch import nn

from paceline.records.errors import PacelineError, choices
from paceline.train.optim.plain import Groups
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
