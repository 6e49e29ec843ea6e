"""float32 means float32: no product or convolution with the 10 bits of TF32, whatever the training allows itself.

torch takes TF32 for cuDNN's convolutions unless told otherwise. It has two sets of switches, former and present ones,
and reading a former one raises when the two disagree. So both are set, and where they disagree already (a program that
knows the present ones only) the former are left alone.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch

_FULL = "ieee"


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Compute in float32 where tensors are; at the end, also after an exception, the switches are as they were."""
    former = _former()
    backends: Any = torch.backends
    switches = [backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul]
    before = [switch.fp32_precision for switch in switches]
    try:
        if former is not None:
            _set_former(False, "highest")
        for switch in switches:
            switch.fp32_precision = _FULL
        yield
    finally:
        if former is not None:
            _set_former(*former)
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


def _former() -> tuple[bool, str] | None:
    _hear_out()
    try:
        return bool(torch.backends.cudnn.allow_tf32), torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_former(convolutions: bool, products: str) -> None:
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.set_float32_matmul_precision(products)


@functools.cache
def _hear_out() -> None:
    """torch says once in a process that its former switches will go, which is no news for who measures."""
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
        warnings.simplefilter("ignore")
        _ = torch.backends.cudnn.allow_tf32
