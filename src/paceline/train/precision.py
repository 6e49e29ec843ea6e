"""In what numbers a run computes, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.parallel.placement import cpu_info
from paceline.records.errors import PacelineError


@dataclass(frozen=True)
class Precision:
    """What `--precision` came to.

    Attributes:
        name: fp32, bf16 or fp64.
        parameters: dtype of weights, gradients, optimizer state and inputs.
        autocast: makes the context for forwards; bf16 computes matrix products and convolutions in bfloat16, and
            keeps weights, sums and losses in float32.
        reason: for the record.
    """

    name: str
    parameters: torch.dtype
    autocast: Callable[[], AbstractContextManager[Any]]
    reason: str


def convolutional(model: nn.Module) -> bool:
    """Whether the model convolves images."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def fast_bf16(device: torch.device) -> tuple[bool, str]:
    """Whether bfloat16 is computed by the hardware, and what says so."""
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        return capability >= (8, 0), f"CUDA capability {capability[0]}.{capability[1]}"
    flags = _cpu_flags()
    for flag in ("amx_bf16", "avx512_bf16"):
        if flag in flags:
            return True, f"the CPU has {flag}"
    return False, "the CPU has no bfloat16 instructions"


@functools.cache
def _cpu_flags() -> frozenset[str]:
    for line in cpu_info():
        if line.startswith(("flags", "Features")):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()  # not Linux: nothing is known, so nothing is assumed


def choose(asked: str, model: nn.Module, device: torch.device) -> Precision:
    """Turn `auto` into a precision and say why.

    bf16 pays where convolutions dominate and the hardware has it (measured: bench/records); small dense models
    such as those of `linear` and `digits` stay in fp32.
    """
    if asked == "auto":
        fast, why = fast_bf16(device)
        if convolutional(model) and fast:
            return _make("bf16", device, f"auto: convolutions, and {why}")
        return _make("fp32", device, f"auto: {why if convolutional(model) else 'no convolutions'}")
    if asked == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise PacelineError("--precision bf16 is not supported by this CUDA device", hint="--precision fp32")
    return _make(asked, device, "asked for")


def _make(name: str, device: torch.device, reason: str) -> Precision:
    if name == "bf16":
        autocast = functools.partial(torch.autocast, device.type, dtype=torch.bfloat16)
        return Precision(name, torch.float32, autocast, reason)
    return Precision(name, {"fp32": torch.float32, "fp64": torch.float64}[name], nullcontext, reason)
