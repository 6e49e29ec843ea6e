"""Where slices lead to, besides the weights that are looked at: a run's earlier checkpoints, and another run."""

from __future__ import annotations

from pathlib import Path

import torch

from paceline.checkpoint.find import all_checkpoints, find_checkpoint
from paceline.checkpoint.state import load_model
from paceline.curvature.fixed_loss import FixedLoss
from paceline.landscape import trajectory
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.subject import flat_weights, task_settings, train_run
from paceline.records.errors import PacelineError


def checkpoints_of_path(run: Path, last: int, config: LandscapeConfig) -> list[tuple[int, Path]]:
    """The complete checkpoints of `run` up to step `last`, the oldest first.

    Raises:
        PacelineError: they are too few for a plane.
    """
    found = all_checkpoints(run, last)
    if len(found) < trajectory.LEAST:
        raise PacelineError(
            f"{run} has {len(found)} complete checkpoints up to step {last:,}, and a path needs {trajectory.LEAST}",
            why="paceline train keeps the newest two, unless told otherwise",
            hint=f"train with --keep 100: paceline train {task_settings(config)[0]} --keep 100",
        )
    return found


def other_end(config: LandscapeConfig, loss: FixedLoss) -> tuple[int, torch.Tensor, dict[str, torch.Tensor]]:
    """Of the run of `--with`: the step, the weights (P,), and all tensors of its checkpoint.

    Raises:
        PacelineError: it is of another task, has no such checkpoint, or does not fit the model.
    """
    run = Path(config.other or "")
    own, theirs = task_settings(config)[0], train_run(run).config.get("task")
    if own != theirs:
        raise PacelineError(
            f"{config.target} is of the task {own}, and {config.other} of {theirs}",
            hint="a straight line joins two runs of one task",
        )
    step, checkpoint = find_checkpoint(run, config.other_checkpoint)
    state = load_model(checkpoint)
    return step, flat_weights(state, loss.layout, loss.point(), checkpoint), state
