"""From the batch norms of a model to the kind that was asked for.

A module is not replaced, its class is: parameters, buffers, names, hooks and mode stay, as does whatever else in the
model refers to it, and checkpoints fit in both directions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.records.errors import PacelineError, choices
from paceline.train.choices import BATCH_NORMS
from paceline.train.norms import ghost, sync

TORCHS_OWN: tuple[type[_BatchNorm], ...] = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
SYNCHRONISED, GHOST = (
    {own: type(f"{kind.__name__}{own.__name__}", (kind, own), {}) for own in TORCHS_OWN}
    for kind in (sync.Synchronised, ghost.Ghost)
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
    norms = (module for module in model.modules() if isinstance(module, sync.Synchronised) and module.training)
    norm = next(norms, None)
    if norm is not None and norm.layers is not None:
        sync.end_forward(
            norm.layers, norm.running_mean.device if norm.running_mean is not None else torch.device("cpu")
        )
