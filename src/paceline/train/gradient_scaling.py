"""What is done to all gradients at once between their sum over ranks and the optimizer; any of them may be sparse."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm


def scale_gradients(parameters: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply every gradient by `factor` (), in place."""
    if values := _numbers(parameters):
        torch._foreach_mul_(values, factor)


def clip_gradients(parameters: Sequence[Tensor], most: float) -> None:
    """As torch's clip_grad_norm_, to the bit, which takes no sparse gradients."""
    if values := _numbers(parameters):
        torch._foreach_mul_(values, torch.clamp(most / (get_total_norm(values) + 1e-6), max=1.0))


def _numbers(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The numbers of all gradients, to be written to: of a sparse one only those that it has, each row once."""
    values = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad._values())
        else:
            values.append(parameter.grad)
    return values
