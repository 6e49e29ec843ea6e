"""Where slices lead to, besides the weights that are looked at: a run's earlier checkpoints, and another run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from paceline.checkpoint.find import all_checkpoints, does_not_fit, find_checkpoint
from paceline.checkpoint.state import load_model
from paceline.landscape import trajectory
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.subject import digest_of_checkpoint, task_settings, train_run
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


@dataclass(frozen=True)
class OtherEnd:
    """The run of `--with`.

    Attributes:
        step: of its checkpoint.
        checkpoint: where that is.
        weights: the digest of it.
        state: all its tensors, by the names and in the shapes of the model's own.
    """

    step: int
    checkpoint: Path
    weights: str
    state: dict[str, Tensor]


def other_end(config: LandscapeConfig, model: nn.Module) -> OtherEnd:
    """The run of `--with`, whole.

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
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    for name in (*wanted, *found):
        if wanted.get(name) != found.get(name):
            here, there = (f"of shape {each[name]}" if name in each else "missing" for each in (wanted, found))
            raise does_not_fit(checkpoint, f"{name} is {here} here, and {there} there")
    return OtherEnd(step, checkpoint, digest_of_checkpoint(checkpoint), state)
