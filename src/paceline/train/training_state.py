"""What a run carries from step to step, and how it is put down and taken up again."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.checkpoint import manifest, state
from paceline.parallel.buffers import is_statistic, mean_over_ranks
from paceline.parallel.reduce import gather_objects
from paceline.records.errors import PacelineError
from paceline.records.event import CheckpointReason
from paceline.records.rundir import RunDir
from paceline.train.averaging import Average
from paceline.train.recorder import Recorder

FORMAT = 1


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        step: optimizer steps done.
        samples: used for them, over all ranks.
        elapsed_s: training time when it was put down.
        reached: evaluations in a row that reached the target.
        target_step: the step at which the target was met for good.
        session: starts so far, 1 for the first.
        evaluation_due: whether the evaluation of this step is still to come.
    """

    step: int = 0
    samples: int = 0
    elapsed_s: float = 0.0
    reached: int = 0
    target_step: int | None = None
    session: int = 0
    evaluation_due: bool = False


@dataclass(frozen=True)
class Saved:
    """A checkpoint in memory.

    Attributes:
        model: the weights as anyone would load them; with an average, that.
        raw: the weights that are trained, where an average stands in `model`.
        average: its state.
        average_from: the step after which it was to begin.
        ranks: of each rank its random state and buffers.
    """

    path: str
    progress: Progress
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    ranks: list[dict[str, Any]]
    raw: dict[str, Tensor] | None = None
    average: dict[str, Tensor] | None = None
    average_from: int | None = None


class Keeper:
    """Writes checkpoints of a run. All ranks call `save` together; rank 0 writes.

    Args:
        run: where.
        task: its name; a checkpoint is of use to the same task only.
        keep: how many.
    """

    def __init__(self, run: RunDir, task: str, keep: int, recorder: Recorder) -> None:
        self.run = run
        self.task = task
        self.keep = keep
        self.recorder = recorder

    def save(
        self,
        model: nn.Module,
        average: Average | None,
        optimizer: torch.optim.Optimizer,
        progress: Progress,
        reason: CheckpointReason,
    ) -> None:
        """Put everything down; `prune` is called when all that belongs to the step is done."""
        began = time.perf_counter()
        if average is not None:
            average.refresh()
        progress.elapsed_s = self.recorder.elapsed_s(began)
        own = {"random": state.capture_random(), "buffers": _buffers(model)}
        if average is not None:
            own["average"] = _buffers(average.model)
        ranks = gather_objects(own)
        if ranks is None:
            return
        shown = trained = _with_merged_buffers(model, [rank["buffers"] for rank in ranks])
        saved = {
            "format": FORMAT,
            "task": self.task,
            "progress": dataclasses.asdict(progress),
            "optimizer": optimizer.state_dict(),
            "ranks": ranks,
        }
        if average is not None:
            averaged = _with_merged_buffers(average.model, [rank["average"] for rank in ranks])
            shown = averaged if average.begun else trained
            saved |= {"raw": trained, "average": average.state(averaged), "average_from": average.first_step}
        contents: dict[str, bytes | memoryview] = {
            state.MODEL_FILE: state.encode_model(shown),
            state.STATE_FILE: state.encode_state(saved),
        }
        path = self.run.checkpoints / manifest.directory_name(progress.step)
        size = manifest.write(self.run.checkpoints, progress.step, len(ranks), self.task, contents)
        self.recorder.checkpoint(progress.step, path, began, size, reason)

    def prune(self, newest: int) -> None:
        """Remove the oldest checkpoints but `keep`, the one at step `newest` among them."""
        if dist.get_rank() == 0:
            manifest.prune(self.run.checkpoints, self.keep, newest)

    def discard(self, step: int) -> None:
        """Remove the checkpoint of weights that turned out to be spoiled."""
        if dist.get_rank() == 0:
            shutil.rmtree(self.run.checkpoints / manifest.directory_name(step), ignore_errors=True)


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.detach().cpu() for name, buffer in model.named_buffers()}


def _with_merged_buffers(model: nn.Module, ranks: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The state dict as anyone would load it: statistics are the mean over ranks, as an evaluation has them."""
    merged = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    own = {id(buffer): name for name, buffer in model.named_buffers()}
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name in merged and is_statistic(buffer):
            merged[name] = mean_over_ranks([rank[own[id(buffer)]] for rank in ranks])
    return merged


def load(path: Path, task: str) -> Saved:
    """Read a complete checkpoint.

    Raises:
        PacelineError: it is of another task or of a newer format.
    """
    manifest.require(path)
    raw = state.load_state(path)
    if raw.get("format") != FORMAT:
        raise PacelineError(
            f"the checkpoint {path} has format {raw.get('format')}, and this version reads {FORMAT}",
            hint="pip install --upgrade paceline",
        )
    if raw["task"] != task:
        raise PacelineError(
            f"the checkpoint {path} is of the task {raw['task']}, not {task}",
            hint=f"paceline train --resume {shlex.quote(str(path.parent.parent))}",
        )
    known = {name: raw[name] for name in ("optimizer", "ranks", "raw", "average", "average_from") if name in raw}
    return Saved(path=str(path), progress=Progress(**raw["progress"]), model=state.load_model(path), **known)


def restore(
    saved: Saved, model: nn.Module, optimizer: torch.optim.Optimizer, average: Average | None = None
) -> list[str]:
    """Take everything up; return notes for people.

    Random state is not restored here but by `restore_random`, last of all, since building things draws numbers.

    Raises:
        PacelineError: the model has other parameters than the checkpoint.
    """
    notes: list[str] = []
    try:
        model.load_state_dict(saved.model if saved.raw is None else saved.raw)
        optimizer.load_state_dict(saved.optimizer)
        if average is not None and saved.average is not None:
            notes += average.restore(saved.average, saved.average_from, saved.progress.step, model)
    except (RuntimeError, ValueError, KeyError) as error:
        raise PacelineError(
            f"the checkpoint {saved.path} does not fit the model",
            why=" ".join(str(error).split())[:300],
            hint="the task's code changed since; start a new run, or bring the old code back",
        ) from error
    world = dist.get_world_size()
    if len(saved.ranks) != world:
        return [
            *notes,
            f"resumed on {world} rank(s) what {len(saved.ranks)} had begun: same batches, but not bit for bit the "
            "same numbers, and each rank draws new random numbers",
        ]
    own = saved.ranks[dist.get_rank()]
    _put_back(model, own["buffers"])
    if average is not None and "average" in own:
        _put_back(average.model, own["average"])
    return notes


@torch.no_grad()
def _put_back(model: nn.Module, buffers: dict[str, Tensor]) -> None:
    for name, buffer in model.named_buffers():
        if name in buffers:
            buffer.copy_(buffers[name])


def restore_random(saved: Saved) -> None:
    """This rank's random state, when the number of ranks is what it was."""
    if len(saved.ranks) == dist.get_world_size():
        state.restore_random(saved.ranks[dist.get_rank()]["random"])
