"""Keeping part of the training set back, so that settings can be chosen without looking at the evaluation set."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Arrays
from paceline.tasks.task import Task

_SEED = 20_170_615
"""Not the run's: all runs hold back the same samples, so that they compare and none of them is ever trained on."""


def hold_out(task: Task, samples: int) -> Task:
    """The task, trained on all but `samples` training samples and evaluated on those.

    Args:
        task: with map-style data or arrays.
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


def _rows(data: Any, rows: np.ndarray) -> Any:
    if isinstance(data, Arrays):
        index = torch.from_numpy(rows)
        return data.with_columns([column.index_select(0, index) for column in data.columns])
    subset: Any = Subset(data, rows.tolist())
    if (collate := getattr(data, "collate", None)) is not None:
        subset.collate = collate
    return subset
