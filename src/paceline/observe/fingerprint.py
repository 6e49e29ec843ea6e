"""The fingerprint of a rank: a digest of every tensor that has to be equal on all ranks, and of what may differ.

Two ranks whose fingerprints are equal hold the same bits. Where they differ, the names say what: only random states
(as they should where each rank augments its own samples), only buffers (batch norm on each rank's own samples), or
weights (ranks that no longer train the same model).
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parallel.digest import digest
from paceline.records.observed import Fingerprint

SHOWN = 16
"""Hexadecimal digits of a digest: 64 bits, so that two states that differ are taken for equal once in 10^19."""


def fingerprint(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    rank: int = 0,
    step: int = 0,
    randomness: bool = False,
) -> Fingerprint:
    """Digests of a model's state; nothing is changed and no random number is drawn.

    Args:
        model: wrapped in DDP or not: names are those of the model inside.
        optimizer: its state as well, under the names of the model's parameters.
        rank, step: written into the record.
        randomness: digests of the generators of Python, NumPy and torch (CPU) as well.
    """
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    names = {id(tensor): name for name, tensor in inner.named_parameters()}
    digests = {f"parameter:{name}": _short(tensor) for name, tensor in inner.named_parameters()}
    digests |= {f"buffer:{name}": _short(tensor) for name, tensor in inner.named_buffers()}
    if optimizer is not None:
        digests |= _of_optimizer(optimizer, names)
    if randomness:
        digests |= _of_generators()
    return Fingerprint(rank=rank, step=step, digests=digests)


def _of_optimizer(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, str]:
    found = {}
    for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        name = names.get(id(parameter), f"#{number}")
        for key, value in optimizer.state.get(parameter, {}).items():
            found[f"optimizer:{name}:{key}"] = _short(value)
    rates = [group.get("lr") for group in optimizer.param_groups]
    return {**found, "optimizer:lr": _short([float(rate) for rate in rates if rate is not None])}


def _of_generators() -> dict[str, str]:
    kind, keys, *rest = np.random.get_state()
    return {
        "random:python": _short(random.getstate()),
        "random:numpy": _short((kind, np.asarray(keys).tolist(), rest)),
        "random:torch": _short(torch.get_rng_state()),
    }


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return digest([value])[:SHOWN]
    return hashlib.sha256(repr(value).encode()).hexdigest()[:SHOWN]
