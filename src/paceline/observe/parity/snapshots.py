"""States of a training as files: what optimizers receive, and what a step leaves."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.observe.model_registry import ModelRegistry, is_ready, is_shard, parameters_of


def model_state(models: ModelRegistry) -> dict[str, Tensor]:
    """Parameters and buffers of all known models, by name."""
    found: dict[str, Tensor] = {}
    for prefix, model in models.modules():
        found |= {f"parameter:{prefix}{name}": each for name, each in model.named_parameters()}
        found |= {f"buffer:{prefix}{name}": each for name, each in model.named_buffers()}
    found |= {f"parameter:{name}": each for name, each in models.loose()}
    return found


def all_models() -> dict[str, Tensor]:
    """Parameters and buffers of every module of this process, trained or not.

    Returns:
        By the class of the outermost module that is no wrapper, its shapes and its number: the same names in a script
        that wraps its model and in one that does not.
    """
    modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module) and is_ready(each)]
    inner = {id(child) for each in modules for child in each._modules.values() if child is not None}
    found: dict[str, Tensor] = {}
    counts: Counter[str] = Counter()
    for each in modules:
        if id(each) in inner:
            continue
        each = unwrapped(each)
        tensors = {**dict(each.named_parameters()), **dict(each.named_buffers())}
        kind = f"{type(each).__name__} {[tuple(tensor.shape) for tensor in tensors.values()]}"
        counts[kind] += bool(tensors)
        found |= {f"{kind} {counts[kind]}: {name}": tensor for name, tensor in tensors.items()}
    return found


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside DDP, DataParallel and torch.compile."""
    while (inner := module._modules.get("module") or module._modules.get("_orig_mod")) is not None and (
        type(module).__module__.startswith("torch.")
    ):
        module = inner
    return module


def optimizer_state(models: ModelRegistry) -> dict[str, Tensor]:
    """Return the state that optimizers keep for each parameter, by name."""
    names, found = models.names(), {}
    for number, optimizer in models.optimizers():
        for index, parameter in enumerate(parameters_of(optimizer)):
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    found[f"optimizer:{number}/{names.get(id(parameter), f'#{index}')}:{key}"] = value
    return found


def gradients(models: ModelRegistry, optimizer: Optimizer) -> dict[str, Tensor]:
    """Gradients of an optimizer's parameters, by name."""
    names = models.names()
    return {
        f"gradient:{names.get(id(each), f'#{index}')}": each.grad
        for index, each in enumerate(parameters_of(optimizer))
        if each.grad is not None
    }


def restore(tensors: dict[str, Tensor], path: Path) -> bool:
    """Give tensors the values that a file has under their names. Returns whether any had others."""
    recorded = load_file(path) if path.exists() else {}
    differing = {
        name: each
        for name, each in tensors.items()
        if name in recorded and recorded[name].shape == each.shape and not torch.equal(recorded[name], each.cpu())
    }
    with torch.no_grad():
        for name, each in differing.items():
            each.copy_(recorded[name])
    return bool(differing)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write dense tensors that this rank holds whole; others are left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {
        name: each.detach().to("cpu", copy=True).contiguous()
        for name, each in tensors.items()
        if not is_shard(each) and each.layout == torch.strided
    }
    save_file(whole, path)
