"""Parts of the training set: samples kept back, so that settings can be chosen without looking at the evaluation set,
and fewer samples to train on, so that it can be seen what more of them give."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Arrays
from paceline.tasks.table import Part
from paceline.tasks.task import Task

_SEED = 20_170_615
"""Not the run's: all runs hold back the same samples, so that they compare and none of them is ever trained on."""
_SUBSET = 3  # a key that keeps this stream of the run's seed apart from its others


def narrow(task: Task, part: Part) -> Task:
    """The task with that part of its training set.

    Raises:
        PacelineError: it has not so many samples.
    """
    return take(hold_out(task, part.holdout), part.samples, part.seed)


def hold_out(task: Task, samples: int) -> Task:
    """The task, trained on all but `samples` training samples and evaluated on those.

    Args:
        task: with map-style data or arrays. Arrays are evaluated unaugmented; what the `__getitem__` of map-style data
            does for training it does for the evaluation, too.
        samples: 0 leaves the task as it is.

    Raises:
        PacelineError: nothing would be left to train on.
    """
    if samples == 0:
        return task
    total = len(task.train_data)
    if samples >= total:
        raise PacelineError(
            f"--holdout {samples:,} leaves nothing to train on", hint=f"fewer than the {total:,} training samples"
        )
    order = np.random.Generator(np.random.Philox(_SEED)).permutation(total)
    kept, held = np.sort(order[samples:]), np.sort(order[:samples])
    return dataclasses.replace(
        task,
        train_data=_rows(task.train_data, kept),
        eval_data=_rows(task.train_data, held),
        data_source=f"{task.data_source}; {samples:,} training samples held out for evaluation".lstrip("; "),
    )


def take(task: Task, samples: int | None, seed: int) -> Task:
    """The task, trained on `samples` of its training samples.

    They are the first of a permutation that depends on `seed` and the size of the training set only: the samples of a
    smaller part are among those of a larger one, and another seed has others. Nothing is stratified: classes come as
    chance has it.

    Args:
        task: with map-style data or arrays; of arrays the chosen rows are copied, the rest need not stay in memory.
        samples: 1 to all; None, or all of them, leaves the task as it is.
        seed: 0 or more.

    Raises:
        PacelineError: it has not so many.
    """
    total = len(task.train_data)
    if samples is None or samples == total:
        return task
    if not 1 <= samples <= total:
        raise PacelineError(
            f"--train-samples {samples:,} is out of range",
            hint=f"legal: 1 <= value <= {total:,}, the training samples that there are",
        )
    order = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, _SUBSET)))).permutation(total)
    return dataclasses.replace(
        task,
        train_data=_rows(task.train_data, np.sort(order[:samples])),
        data_source=f"{task.data_source}; {samples:,} of {total:,} training samples, by seed {seed}".lstrip("; "),
    )


def _rows(data: Any, rows: np.ndarray) -> Any:
    if isinstance(data, Arrays):
        index = torch.from_numpy(rows)
        return data.with_columns([column.index_select(0, index) for column in data.columns])
    subset: Any = Subset(data, rows.tolist())
    if (collate := getattr(data, "collate", None)) is not None:
        subset.collate = collate
    return subset
