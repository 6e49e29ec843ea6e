"""A batch norm whose statistics are those of all processes' samples; torch's own SyncBatchNorm needs a GPU.

    model = synchronised(model)        # before it is wrapped, on every process

Every process has to call the model for every step, also one that has no sample in it: the others wait for its sums.
Without a process group it is torch's batch norm. Weights and their names are those of the model that came in.
"""

import torch
import torch.distributed as dist
from torch import nn


def synchronised(model):
    """The same model, with its BatchNorm1d layers replaced; their weights and buffers are kept, not copied."""
    if isinstance(model, nn.BatchNorm1d):
        fresh = SyncNorm(model.num_features, model.eps, model.momentum).to(model.weight.dtype)
        fresh.weight, fresh.bias = model.weight, model.bias
        for name, buffer in model.named_buffers():
            setattr(fresh, name, buffer)
        return fresh.train(model.training)
    for name, child in model.named_children():
        setattr(model, name, synchronised(child))
    return model


class SyncNorm(nn.BatchNorm1d):
    """Of signals (n, channels, length); n may be 0 and may differ between processes."""

    def forward(self, signals):
        """Normalised by the mean and the variance of each channel over all processes, while it trains."""
        if not self.training or not dist.is_initialized():
            return super().forward(signals)
        own = torch.cat([signals.sum(dim=(0, 2)), signals.new_tensor([signals.shape[0] * signals.shape[2]])])
        sums = _Sum.apply(own)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = signals - mean[None, :, None]
        variance = _Sum.apply(centred.square().sum(dim=(0, 2))) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (variance * count / (count - 1) - self.running_var)
        scale = self.weight / (variance + self.eps).sqrt()
        return centred * scale[None, :, None] + self.bias[None, :, None]


class _Sum(torch.autograd.Function):
    """A sum over processes. A value here is in the losses of all of them, so its gradient is a sum, too."""

    @staticmethod
    def forward(ctx, own):
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, above):
        total = above.clone()
        dist.all_reduce(total)
        return total
