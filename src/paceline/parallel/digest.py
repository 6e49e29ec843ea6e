"""Digests of tensors: equal digests are equal bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def digest(tensors: Iterable[Tensor]) -> str:
    """64 hexadecimal digits of the bits of all tensors one after the other, wherever they are, whatever their type."""
    bits = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        bits.update(flat.view(torch.uint8).numpy().tobytes())
    return bits.hexdigest()
