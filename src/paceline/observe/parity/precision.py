"""float64 for scripts that ask for less: `x.float()`, `model.half()`, `dtype=torch.bfloat16`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

HALF = (torch.float16, torch.bfloat16)
_LESS = (torch.float32, *HALF)
_FRAMES = 16
"""From a request to the line that makes it, at most: each dispatch mode in between adds four."""
_SCALER = "torch/amp/grad_scaler.py"
"""Its kernels take scales in float32 only."""


class InDouble(TorchDispatchMode):
    """Gives float64 wherever an operation is asked for a tensor of a shorter type. Not in workers of loaders, which
    collate into memory of a size that fits the shorter type; batches become float64 when they arrive.

    Args:
        asked: is told of each request for half precision.
    """

    def __init__(self, asked: Callable[[torch.dtype], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._asked, self._process = asked, os.getpid()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operation."""
        given = kwargs or {}
        dtype = given.get("dtype")
        if dtype in _LESS and os.getpid() == self._process and not _within_scaler():
            if dtype in HALF:
                self._asked(dtype)
            given = {**given, "dtype": torch.float64}
        return func(*args, **given)


def autocast_types() -> list[torch.dtype]:
    """Types that autocast computes in now."""
    devices = [each for each in ("cpu", "cuda") if torch.is_autocast_enabled(each)]
    return [torch.get_autocast_dtype(each) for each in devices]


def _within_scaler() -> bool:
    at = sys._getframe(2)
    for _ in range(_FRAMES):
        if at is None or at.f_code.co_filename.endswith(_SCALER):
            return at is not None
        at = at.f_back  # type: ignore[assignment]
    return False
