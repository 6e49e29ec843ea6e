"""(3) A DDP loop written by hand and tuned as well as we could: what an expert would write for this one job.

Each setting below was measured with `bench/tune_hand_loop.py`; the defaults are the fastest that we found on a CPU.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from contestants.base import LR, MOMENTUM, WEIGHT_DECAY, Workload, buffer_sync
from contestants.resident import index_batches, load, normalise
from paceline.tasks.models.cnn import FashionCNN, FlattenChannelsLast

_IMPLEMENTATIONS: dict[str, dict[str, Any]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
}


class HandLoop:
    """Resident uint8 data, whole-tensor work, one all-reduce a bucket; no number is read back.

    Args:
        channels_last, bf16: None takes what the workload says.
        optimizer: torch's implementation of SGD.
        ddp: keyword arguments of DistributedDataParallel, over the tuned ones; `sync_buffers` for its buffers.
        sync: `ddp`, or `flat`: no DDP, one all-reduce of one flat tensor after backward (no overlap, no hooks).
        form: of the model, to see what its own form gains: `relu_first` (ReLU before max pooling: the same outputs,
            four times the work), `flatten_copy` (flattened with channels first, a copy), `inplace` (of ReLU).
        numerics: of the process: `denormals` (keep numbers below 1e-38 instead of flushing them to zero) and
            `fp32_conv` (precision of fp32 convolutions and products inside oneDNN, "ieee" or "bf16").
    """

    synchronised = True

    def __init__(
        self,
        channels_last: bool = True,
        bf16: bool | None = None,
        optimizer: Literal["fused", "foreach", "loop"] = "fused",
        ddp: dict[str, Any] | None = None,
        sync: Literal["ddp", "flat"] = "ddp",
        form: dict[str, bool] | None = None,
        numerics: dict[str, Any] | None = None,
    ) -> None:
        self.channels_last, self.bf16 = channels_last, bf16
        self.implementation, self.sync = _IMPLEMENTATIONS[optimizer], sync
        settings = {"gradient_as_bucket_view": True, "sync_buffers": False} | (ddp or {})
        self.ddp_settings = buffer_sync(settings.pop("sync_buffers")) | settings
        self.form = {"relu_first": False, "flatten_copy": False, "inplace": True} | (form or {})
        numerics = {"denormals": True, "fp32_conv": "ieee"} | (numerics or {})
        self.denormals, self.fp32_conv = numerics["denormals"], numerics["fp32_conv"]

    def setup(self, work: Workload) -> None:
        """See `Contestant`."""
        torch.manual_seed(work.seed)
        self.world = work.world
        self.autocast = work.bf16 if self.bf16 is None else self.bf16
        self.model = _vary(FashionCNN(), **self.form)
        if self.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.ddp: nn.Module = self.model
        if self.sync == "ddp":
            self.ddp = DistributedDataParallel(self.model, **self.ddp_settings)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, **self.implementation
        )
        self.images, self.labels = load(work.root)
        self.indices = index_batches(len(self.labels), work.batch, work.rank, work.world, work.seed)

    def ready(self) -> None:
        """Settings of the whole process, which the contestant before may have left differently."""
        torch.set_flush_denormal(not self.denormals)
        if self.fp32_conv != "ieee":
            torch.backends.mkldnn.conv.fp32_precision = self.fp32_conv
            torch.backends.mkldnn.matmul.fp32_precision = self.fp32_conv

    def run(self, steps: int) -> None:
        """See `Contestant`."""
        for _ in range(steps):
            chosen = next(self.indices)
            images = normalise(self.images.index_select(0, chosen))
            labels = self.labels.index_select(0, chosen)
            with torch.autocast("cpu", torch.bfloat16) if self.autocast else nullcontext():
                loss = F.cross_entropy(self.ddp(images), labels)
            loss.backward()
            if self.sync == "flat":
                _all_reduce_flat([p.grad for p in self.model.parameters() if p.grad is not None], self.world)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.fp32_conv != "ieee":
            torch.backends.mkldnn.conv.fp32_precision = "ieee"
            torch.backends.mkldnn.matmul.fp32_precision = "ieee"
        torch.set_flush_denormal(False)

    def module(self) -> nn.Module:
        """See `Contestant`."""
        return self.model

    def close(self) -> None:
        """Nothing is open."""


def _vary(model: FashionCNN, relu_first: bool, flatten_copy: bool, inplace: bool) -> nn.Module:
    """The model in one of its equivalent forms."""
    if relu_first:
        layers = list(model.features)
        for place, (layer, after) in enumerate(pairwise(model.features)):
            if isinstance(layer, nn.MaxPool2d) and isinstance(after, nn.ReLU):
                layers[place], layers[place + 1] = after, layer
        model.features = nn.Sequential(*layers)
    if flatten_copy:  # features come in another order, to which the layer behind gets used
        model.head = nn.Sequential(*(nn.Flatten() if isinstance(m, FlattenChannelsLast) else m for m in model.head))
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = inplace
    return model


def _all_reduce_flat(gradients: list[Tensor], world: int) -> None:
    """Mean over ranks of all gradients at once."""
    flat = torch.cat([gradient.flatten() for gradient in gradients]).div_(world)
    dist.all_reduce(flat)
    pieces = flat.split([gradient.numel() for gradient in gradients])
    torch._foreach_copy_(gradients, [p.view(g.shape) for p, g in zip(pieces, gradients, strict=True)])
