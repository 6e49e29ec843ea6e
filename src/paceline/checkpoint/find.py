"""Checkpoints of a run by their step, and their weights into a model."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.checkpoint import manifest
from paceline.records.errors import PacelineError, choices
from paceline.records.rundir import RunDir, read_info

if TYPE_CHECKING:
    from torch import Tensor, nn


def find_checkpoint(run: Path, step: int | None) -> tuple[int, Path]:
    """The checkpoint of that step, or the newest complete one.

    Raises:
        PacelineError: there is none; the message lists those that are there. Or `run` is not there, or no run.
    """
    checkpoints = RunDir(run).checkpoints
    if not checkpoints.is_dir():
        _refuse_other_than_runs(run)
    if step is None:
        path, passed = manifest.newest_complete(checkpoints)
        if path is None:
            raise PacelineError(
                f"{run} has no complete checkpoint",
                why=f"{passed[0].path.name}: {passed[0].reason}" if passed else "",
                hint=f"paceline train --resume {shlex.quote(str(run))}",
            )
        return manifest.read_manifest(path).step, path
    path = checkpoints / manifest.directory_name(step)
    if not path.is_dir():
        there = sorted(found for found, _ in manifest.steps_newest_first(checkpoints))
        raise PacelineError(f"{run} has no checkpoint of step {step:,}", hint=f"it has: {choices(there) or 'none'}")
    manifest.require(path)
    return step, path


def _refuse_other_than_runs(path: Path) -> None:
    """Where there are no checkpoints, the first question is whether it is a run at all."""
    if path.is_dir() and path.parent.name == RunDir(path).checkpoints.name:  # one checkpoint of a run
        manifest.require(path)
    info = read_info(path)
    if info.verb != "train":
        raise PacelineError(
            f"{path} is a run of paceline {info.verb}", why="it has no checkpoints", hint="a run of paceline train"
        )


def all_checkpoints(run: Path, last: int) -> list[tuple[int, Path]]:
    """All complete checkpoints up to that step, the oldest first."""
    found = manifest.steps_newest_first(RunDir(run).checkpoints)
    return sorted((step, path) for step, path in found if step <= last and manifest.damage(path) is None)


def load_into(model: nn.Module, state: Mapping[str, Tensor], where: Path) -> None:
    """Give `model` the weights of a checkpoint.

    Raises:
        PacelineError: they do not fit.
    """
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise does_not_fit(where, " ".join(str(error).split())[:300]) from error


def initialize(model: nn.Module, path: Path) -> Path:
    """Give `model` the weights and buffers of a run's newest checkpoint, or of a checkpoint; return that.

    Raises:
        PacelineError: there is none, or it does not fit.
    """
    from paceline.checkpoint.state import load_model  # torch: whoever only looks for a checkpoint does without

    checkpoint = path if (path / manifest.MANIFEST).exists() else find_checkpoint(path, None)[1]
    manifest.require(checkpoint)
    load_into(model, load_model(checkpoint), checkpoint)
    return checkpoint


def does_not_fit(where: Path, why: str) -> PacelineError:
    """What to say of a checkpoint of another model."""
    return PacelineError(
        f"the checkpoint {where} does not fit the model",
        why=why,
        hint="it is of another task or width, or the task's code changed since",
    )
