"""Ghost batch norm: statistics over groups of a stated number of samples (Hoffer, Hubara and Soudry 2017, 1705.08741).

A large batch makes the noise of batch statistics small, and with it goes some regularisation. Here a batch is cut
into contiguous groups, each normalised by its own statistics as if it were a batch. Local batch norm on N workers is
ghost batch norm whose size is a worker's part; this one keeps the size when the batch or the number of workers
changes. Where each worker's part is a multiple of the size, N workers form the same groups as one.

**The last group.** What is left over after whole groups becomes a group of its own if it is more than half the size;
otherwise it joins the group before, since statistics of few samples are mostly noise, and of one have no variance.
Groups so have more than half and at most one and a half times the size, or are the whole batch where that is smaller.

**Running statistics move once a forward**, by the mean of the groups' statistics, each weighted by its samples. The
paper moves them once a group. Then their horizon would shrink with each worker's number of groups, and so depend on
the number of workers; the mean does not: the mean over workers of their running statistics is what one worker has.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.train.norms.sync import statistics_dtype, update_running


def group_sizes(samples: int, size: int) -> list[int]:
    """Samples in each group, in order.

    Args:
        samples: of the batch, 0 or more.
        size: of a group, 2 or more.

    Returns:
        `size` each but the last, which has more than size / 2 and at most 3 size / 2; [samples] for a small batch.
    """
    whole, rest = divmod(samples, size)
    if whole == 0:
        return [samples]
    sizes = [size] * whole
    if 2 * rest > size:
        sizes.append(rest)
    else:
        sizes[-1] += rest
    return sizes


class Ghost(_BatchNorm):
    """What makes one of torch's batch norms a ghost one; in eval mode, and for a batch of one group, it is torch's.

    Attributes:
        ghost_size: samples of a group, 2 or more; set by `convert.with_batch_norm`.
    """

    ghost_size: int

    def forward(self, values: Tensor) -> Tensor:
        """Normalise (samples, channels, ...), each group by its own statistics in training."""
        sizes = group_sizes(len(values), self.ghost_size)
        if not self.training or len(sizes) == 1:
            whole: Tensor = super().forward(values)
            return whole
        self._check_input_dim(values)  # type: ignore[no-untyped-call]
        # With momentum 1 torch leaves in its running buffers just what the group had: mean and unbiased variance.
        dtype = self.weight.dtype if self.affine else statistics_dtype(values)
        moments = torch.zeros(len(sizes), 2, values.shape[1], dtype=dtype, device=values.device)
        normalised = torch.cat(
            [
                functional.batch_norm(part, found[0], found[1], self.weight, self.bias, True, 1.0, self.eps)
                for part, found in zip(values.split(sizes), moments, strict=True)
            ]
        )
        shares = moments.new_tensor([size / len(values) for size in sizes])
        mean, variance = (moments * shares[:, None, None]).sum(0)
        update_running(self, mean, variance)
        return normalised

    def extra_repr(self) -> str:
        """With the size of a group."""
        torchs: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{torchs}, ghost_size={self.ghost_size}"
