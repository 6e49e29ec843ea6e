"""What is looked at: the weights of a run, or the fresh ones of a task, in a model on this rank's device."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.checkpoint import manifest
from paceline.checkpoint.find import does_not_fit, find_checkpoint, load_into
from paceline.checkpoint.state import MODEL_FILE, load_model
from paceline.curvature.weights import Slice
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.target import task_settings
from paceline.parallel.rank_context import RankContext
from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Like
from paceline.tasks.holdout import narrow
from paceline.tasks.names import is_run
from paceline.tasks.task import Task
from paceline.tasks.task_loader import load_task

DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True)
class Subject:
    """What is looked at.

    Attributes:
        task: as the run had it.
        model: with the weights, in eval mode or not: measuring does not care.
        like: what batches shall be like.
        data: samples of `--on`.
        run: the directory of a run; None for fresh weights.
        step: of the checkpoint; None for fresh weights.
        fingerprint: of the weights and buffers, hexadecimal: see `digest_of_checkpoint` and `digest`.
        batch_norm: whether the model has any.
    """

    task: Task
    model: nn.Module
    like: Like
    data: Any
    run: Path | None
    step: int | None
    fingerprint: str
    batch_norm: bool


def load_subject(config: LandscapeConfig, context: RankContext) -> Subject:
    """Build it on this rank.

    Raises:
        PacelineError: no such task, run, checkpoint or data.
    """
    spec, options, part = task_settings(config)
    task = narrow(load_task(spec, options), part)
    _seed(config.seed)
    model = task.model()
    run = Path(config.target) if is_run(config.target) else None
    step = None
    if run is not None:
        step, checkpoint = find_checkpoint(run, config.checkpoint)
        load_into(model, load_model(checkpoint), checkpoint)
        fingerprint = digest_of_checkpoint(checkpoint)
    elif config.checkpoint is not None:
        raise PacelineError("--checkpoint is of a run, and the target is a task", hint="leave it out")
    else:
        fingerprint = digest(model.state_dict())
    convolutional = any(isinstance(module, nn.Conv2d) for module in model.modules())
    model = model.to(device=context.device, dtype=DTYPES[config.precision])
    if convolutional:
        model = model.to(memory_format=torch.channels_last)
    data = task.train_data if config.on == "train" else task.eval_data
    return Subject(
        task=task,
        model=model,
        like=Like(context.device, DTYPES[config.precision], convolutional),
        data=data,
        run=run,
        step=step,
        fingerprint=fingerprint,
        batch_norm=any(isinstance(module, _BatchNorm) for module in model.modules()),
    )


def _seed(seed: int) -> None:
    # As `paceline train` does, so that the fresh weights are those that a training with this seed starts from.
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def flat_weights(state: Mapping[str, Tensor], layout: Sequence[Slice], like: Tensor, where: Path) -> Tensor:
    """(P,) the trained weights of a checkpoint, as `like` (P,).

    Raises:
        PacelineError: one is missing or has another shape.
    """
    flat = torch.empty_like(like)
    for place in layout:
        tensor = state.get(place.name)
        if tensor is None or tuple(tensor.shape) != place.shape:
            found = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
            raise does_not_fit(where, f"{place.name} of shape {place.shape} is {found} there")
        flat[place.start : place.stop] = tensor.flatten().to(flat)
    return flat


def digest_of_checkpoint(checkpoint: Path) -> str:
    """The sha256 of a complete checkpoint's model file, as its manifest says."""
    return manifest.read_manifest(checkpoint).files[MODEL_FILE].sha256


def digest(state: Mapping[str, Tensor]) -> str:
    """Of names and bits, where there is no file."""
    found = hashlib.sha256()
    for name, tensor in state.items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
