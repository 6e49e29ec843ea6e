"""Facts of the runs that explain why gradients differ; some take further runs of one process."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paceline.observe.parity.batches import PADDED
from paceline.records.observed import Collective
from paceline.records.parity import ParityStep, read_steps, step_folder
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.verify.compare import compare
from paceline.verify.explanation import Facts, Taken
from paceline.verify.script_runs import ScriptRun
from paceline.verify.states import State, read_state

_GATHERS = ("all_gather", "all_to_all", "gather")

Alone = Callable[[int, int], ScriptRun]
"""Runs one process on the batches of a rank alone, from a step on."""


def facts_at(step: int, ranks: ScriptRun, one: ScriptRun, alone: Alone) -> Facts | None:
    """Facts of a step at which gradients or states differ; None where there are no records of it."""
    numbers = {path.stem for path in step_folder(one.folder, 0, step).glob("gradients-*.safetensors")}
    worst, optimizer = -1.0, -1
    for name in sorted(numbers):
        pair = [_gradients(folder, step, name) for folder in (ranks.folder, one.folder)]
        relative = compare(*pair).worst[1]
        if relative > worst:
            worst, optimizer = relative, int(name.rpartition("-")[2])
    theirs = [_line(ranks.folder, rank, step, optimizer) for rank in range(ranks.world)]
    ours = _line(one.folder, 0, step, optimizer)
    known = [each for each in theirs if each is not None]
    if ours is None or len(known) < ranks.world:
        return None
    line = ours
    in_turn = any(each.backwards != ours.backwards for each in known)  # one process takes their micro-batches so

    def one_rank(rank: int) -> Taken | None:
        return None if in_turn else _taken(alone(rank, step).folder, step, line.optimizer)

    ranks_take, one_takes = (_taken(folder, step, optimizer) for folder in (ranks.folder, one.folder))
    if ranks_take is None or one_takes is None:
        return None
    return Facts(
        theirs=known,
        ours=ours,
        ranks=ranks_take,
        one=one_takes,
        alone=one_rank,
        padded=any(end is not None and PADDED in end.adjusted for end in one.ends),
        gathers=_gathers(ranks.folder, step),
    )


def _taken(folder: Path, step: int, optimizer: int) -> Taken | None:
    """Gradients that rank 0 receives, as they were after the last backward pass: clipping scales them."""
    line = _line(folder, 0, step, optimizer)
    if line is None:
        return None
    gradients = _gradients(folder, step, f"gradients-{optimizer}")
    length = math.sqrt(sum(float(np.sum(each.astype(np.float64) ** 2)) for each in gradients.values()))
    scale = line.norm / length if line.norm and length else 1.0
    return Taken({name: each * scale for name, each in gradients.items()}, line.loss)


def _gradients(folder: Path, step: int, name: str) -> State:
    path = step_folder(folder, 0, step) / f"{name}.safetensors"
    return read_state(path) if path.exists() else {}


def _line(folder: Path, rank: int, step: int, optimizer: int) -> ParityStep | None:
    lines = read_steps(folder, rank)
    return next((each for each in lines if (each.step, each.optimizer) == (step, optimizer)), None)


def _gathers(folder: Path, step: int) -> bool:
    """True if ranks gather tensors before a step, after the one before it."""
    path = RunDir(folder / "run").events(0)
    return path.exists() and any(
        isinstance(each, Collective) and each.op.startswith(_GATHERS) and each.step == step - 1
        for each in EventStream(path, only=Collective)
    )
