"""From the batch norms of a model to the kind that was asked for; ghost batch norm is defined here, see `sync` for
the synchronised one.

A module is not replaced, its class is: parameters, buffers, names, hooks and mode stay, as does whatever else in the
model refers to it, and checkpoints fit in both directions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.records.errors import PacelineError, choices
from paceline.train.choices import BATCH_NORMS
from paceline.train.norms import sync
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
    """Ghost batch norm: statistics over groups of a stated number of samples (Hoffer et al. 2017, arXiv 1705.08741).

    A large batch makes the noise of batch statistics small, and with it goes some regularisation. Here a batch is cut
    into contiguous groups, each normalised by its own statistics as if it were a batch. Local batch norm on N workers
    is ghost batch norm whose size is a worker's part; this one keeps the size when the batch or the number of workers
    changes. Where each worker's part is a multiple of the size, N workers form the same groups as one.

    **The last group.** What is left over after whole groups becomes a group of its own if it is more than half the
    size; otherwise it joins the group before, since statistics of few samples are mostly noise, and of one have no
    variance. Groups so have more than half and at most one and a half times the size, or are the whole batch where that
    is smaller.

    **Running statistics move once a forward**, by the mean of the groups' statistics, each weighted by its samples. The
    paper moves them once a group. Then their horizon would shrink with each worker's number of groups, and so depend on
    the number of workers; the mean does not: the mean over workers of their running statistics is what one worker has.

    In eval mode, and for a batch of one group, it is torch's batch norm.

    Attributes:
        ghost_size: samples of a group, 2 or more; set by `with_batch_norm`.
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


TORCHS_OWN: tuple[type[_BatchNorm], ...] = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
SYNCHRONISED, GHOST = (
    {own: type(f"{kind.__name__}{own.__name__}", (kind, own), {}) for own in TORCHS_OWN}
    for kind in (sync.Synchronised, Ghost)
)
"""The class that takes the place of each of torch's."""
MIN_GHOST_SIZE = 2
"""One sample has no variance."""


def with_batch_norm(
    model: nn.Module,
    kind: str,
    *,
    ghost_size: int,
    momentum: Callable[[float], float] | None,
    device: torch.device,
) -> nn.Module:
    """Make every batch norm of `model` one of the kind asked for, in place; nothing else of the model changes.

    Args:
        model: before DDP wraps it.
        kind: a name of `BATCH_NORMS`; local leaves the modules as the model has them.
        ghost_size: of kind ghost: samples in a group, 2 or more.
        momentum: makes each module's running momentum from its own; a momentum of None (a mean over all updates) stays.
        device: on CUDA, sync is torch's own SyncBatchNorm.

    Returns:
        the same model.

    Raises:
        PacelineError: an unknown kind, a size below 2, no batch norm in the model, or one whose class is not torch's
            own, so that its forward may do more than a batch norm does. The model is then untouched.
    """
    if kind not in BATCH_NORMS:
        raise PacelineError(f"--batch-norm {kind} is unknown", hint=f"legal values: {choices(BATCH_NORMS)}")
    if kind == "ghost" and ghost_size < MIN_GHOST_SIZE:
        raise PacelineError(f"--ghost-size {ghost_size} is out of range", hint=f"legal: {MIN_GHOST_SIZE} <= value")
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    classes = _classes(kind, norms, device)
    layers = sync.Layers(tuple(norms), max((norm.num_features for norm in norms.values()), default=0))
    for place, (name, module) in enumerate(norms.items()):
        if name in classes:
            module.__class__ = classes[name]
            if isinstance(module, sync.Synchronised):
                module.layers, module.place = layers, place
            if classes[name] is nn.SyncBatchNorm:
                module.process_group = None  # type: ignore[assignment]  # all ranks
            if kind == "ghost":
                module.ghost_size = ghost_size  # type: ignore[assignment]
        if momentum is not None and module.momentum is not None:
            module.momentum = momentum(module.momentum)
    return model


def _classes(kind: str, norms: dict[str, _BatchNorm], device: torch.device) -> dict[str, type[_BatchNorm]]:
    """The new class of each module, by name."""
    if kind == "local":
        return {}
    if not norms:
        raise PacelineError(
            f"--batch-norm {kind} has nothing to change: the model has no batch norm",
            hint="leave --batch-norm out, or give the model BatchNorm layers",
        )
    table = GHOST if kind == "ghost" else SYNCHRONISED
    for name, module in norms.items():
        if type(module) not in table:
            raise PacelineError(
                f"--batch-norm {kind} cannot change the layer {name or 'that is the model'}, a {type(module).__name__}",
                why="only torch's own BatchNorm1d, 2d, 3d and SyncBatchNorm are known to do nothing but batch norm",
                hint="use one of them in the model, or --batch-norm local",
            )
    if kind == "sync" and device.type == "cuda":
        return dict.fromkeys(norms, nn.SyncBatchNorm)
    return {name: table[type(module)] for name, module in norms.items()}


def synchronises(model: nn.Module) -> bool:
    """Whether a forward of the model in training is a collective, which every rank has to take part in."""
    return any(isinstance(module, (sync.Synchronised, nn.SyncBatchNorm)) for module in model.modules())


def end_forward(model: nn.Module) -> None:
    """After a forward in training: make sure that all ranks took the same branches through synchronised norms.

    torch's own, which CUDA has, cannot tell.
    """
    for module in model.modules():
        if isinstance(module, sync.Synchronised) and module.training and module.layers is not None:
            device = module.running_mean.device if module.running_mean is not None else torch.device("cpu")
            sync.end_forward(module.layers, device)
            return
