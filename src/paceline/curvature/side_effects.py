"""Measuring leaves no trace: modes, buffers, random state and precision switches come back as they were."""

from __future__ import annotations

import contextlib
import functools
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn


@contextlib.contextmanager
def untouched(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Put `model` into eval mode; at the end, also after an exception, everything is as before.

    That is: the mode of each module, the buffers (which tensor and what is in it), and the random state of Python,
    numpy and torch, on the CPU and on `device`.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(module, name, buffer) for module in model.modules() for name, buffer in module._buffers.items()]
    contents = [None if buffer is None else buffer.detach().clone() for _, _, buffer in buffers]
    with _random_state(device):
        try:
            model.eval()
            yield
        finally:
            for module, training in modes:
                module.training = training
            with torch.no_grad():
                for (module, name, buffer), content in zip(buffers, contents, strict=True):
                    module._buffers[name] = buffer
                    if buffer is not None and content is not None:
                        buffer.copy_(content)


def seed_chunk(index: int, device: torch.device) -> None:
    """Make what a loss draws at random the same at each call, and another for each chunk. Call within `untouched`."""
    random.seed(index)
    np.random.seed(index)
    torch.default_generator.manual_seed(index)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(index)


@contextlib.contextmanager
def _random_state(device: torch.device) -> Iterator[None]:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Compute products and convolutions in float32, without TF32; at the end the switches are as they were.

    torch has two sets of switches, former and present ones, and reading a former one raises when the two disagree. So
    both are set; where they disagree already (a program that knows the present ones only) the former are left alone.
    """
    former = _former_switches()
    backends: Any = torch.backends
    switches = [backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul]
    before = [switch.fp32_precision for switch in switches]
    try:
        if former is not None:
            _set_former_switches(False, "highest")
        for switch in switches:
            switch.fp32_precision = "ieee"
        yield
    finally:
        if former is not None:
            _set_former_switches(*former)
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


def _former_switches() -> tuple[bool, str] | None:
    _silence_deprecation()
    try:
        return bool(torch.backends.cudnn.allow_tf32), torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_former_switches(convolutions: bool, products: str) -> None:
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.set_float32_matmul_precision(products)


@functools.cache
def _silence_deprecation() -> None:
    """Trigger torch's once-per-process warning about its former switches where nobody sees it."""
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
        warnings.simplefilter("ignore")
        _ = torch.backends.cudnn.allow_tf32
