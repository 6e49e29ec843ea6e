"""Measuring leaves no trace: mode, buffers and random state of what is measured come back as they were."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

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
