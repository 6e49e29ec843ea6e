"""From a name and settings to an optimizer over a model's parameters."""

from __future__ import annotations

import importlib

import torch
from torch import nn

from paceline.train.optim.plain import Groups
from paceline.train.optim.table import OPTIMIZERS, Settings


def parameter_groups(model: nn.Module, weight_decay: float) -> Groups:
    """Matrices and filters decay; biases and the vectors of norms do not (He et al. 2019, section 3.1)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.ndim > 1]
    kept = [p for p in trained if p.ndim <= 1]
    groups: Groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build_optimizer(name: str, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer `name` of the table."""
    module, function = OPTIMIZERS[name].factory.split(":")
    factory = getattr(importlib.import_module(module), function)
    optimizer: torch.optim.Optimizer = factory(parameter_groups(model, settings.weight_decay), settings)
    return optimizer
