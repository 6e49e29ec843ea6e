"""What kinds of batch norm share: running statistics, updated as torch's update theirs, and the word for one sample."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

SINGLE_SAMPLE = "batch norm cannot normalise a single sample: its variance is 0"
TORCHS_SINGLE_SAMPLE = "Expected more than 1 value per channel"
"""What torch's own say of it, as a ValueError."""


@torch.no_grad()
def update_running(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics once: by the module's momentum, or to the mean over all updates where it is None.

    Nothing happens where the module does not track them.

    Args:
        norm: in training mode.
        mean: (channels,) of what it has just seen.
        variance: (channels,) likewise, unbiased, as torch keeps it.
    """
    if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
        return
    weight = norm.momentum if norm.momentum is not None else 0.0
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if norm.momentum is None:
            weight = 1.0 / float(norm.num_batches_tracked)
    for running, new in ((norm.running_mean, mean), (norm.running_var, variance)):
        running.mul_(1.0 - weight).add_(new.to(running.dtype), alpha=weight)


def statistics_dtype(values: Tensor) -> torch.dtype:
    """In which statistics of `values` are computed: float32 for 16-bit values, else their own."""
    return torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype
