"""What all classification tasks share: a loss that is a sum, with label smoothing in training only."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from paceline.tasks.task import Loss


def cross_entropy(label_smoothing: float = 0.0) -> Callable[[nn.Module, tuple[Tensor, Tensor]], Loss]:
    """A loss function: cross entropy summed over (inputs, labels), count = samples, outputs = logits.

    Args:
        label_smoothing: 0 <= value < 1; not applied in evaluation, so that losses of runs compare.
    """

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        inputs, labels = batch
        logits = model(inputs)
        smoothing = label_smoothing if model.training else 0.0
        return Loss(F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing), len(labels), logits)

    return loss
