"""torch's own optimizers, in their fused form: one pass over each tensor instead of one an operation."""

from __future__ import annotations

from typing import Any

import torch

from paceline.train.optim.table import Settings

Groups = list[dict[str, Any]]


def sgd(groups: Groups, settings: Settings) -> torch.optim.Optimizer:
    """SGD. Momentum as torch has it: the buffer holds gradients, the rate is applied after."""
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov, fused=True)


def adamw(groups: Groups, settings: Settings) -> torch.optim.Optimizer:
    """AdamW."""
    return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True)
