"""Evaluation over all ranks: each sample once, means as sums over counts, and the count is asserted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paceline.parallel.buffers import Differing, merge_buffers
from paceline.parallel.reduce import gather_rows, sum_over_ranks
from paceline.records.errors import Exit, PacelineError
from paceline.records.schema import Measure
from paceline.tasks.task import Gathered, Task
from paceline.train.feed import Feed
from paceline.train.objective import Objective


@torch.no_grad()
def evaluate(
    objective: Objective, task: Task, feed: Feed, note: Callable[[str], None] = lambda text: None
) -> dict[str, Measure]:
    """Loss and metrics over the whole evaluation set, equal on every rank.

    Buffers are merged over ranks first and stay merged; `note` takes what there is to say of that. The module's mode is
    put back. How many samples a batch has is known from the plan that cut it, whatever form the collate function gives
    it.

    Raises:
        PacelineError: the ranks together did not see each sample exactly once, or a metric is not as agreed.
    """
    for text in remarks(merge_buffers(objective.model)):
        note(text)
    was_training = objective.model.training
    objective.model.eval()
    try:
        own = _own_part(objective, task, feed)
    finally:
        objective.model.train(was_training)
    means = ["loss", *(name for name, metric in task.metrics.items() if not isinstance(metric, Gathered))]
    device = objective.ledger.device
    table = torch.zeros(len(means) + 1, 2, dtype=torch.float64, device=device)
    for row, name in enumerate(means):
        table[row] = own.sums.get(name, table[row])
    table[-1] = torch.tensor([own.samples, len(own.wrong_rows)])
    sum_over_ranks(table)
    total = len(task.eval_data)
    counted = table[0, 1] if task.count == "samples" else table[-1, 0]
    if table[-1, 0] != total or counted != total:
        raise PacelineError(
            f"{min(float(counted), float(table[-1, 0])):,.10g} samples were evaluated where the set has {total:,}",
            why='the loss counts samples (count="samples"), and each has to be counted once',
            hint="let the collate function keep every sample, or leave count out of the Task",
            exit_code=Exit.FAILED,
        )
    if table[-1, 1]:
        raise PacelineError(
            next(iter(own.wrong_rows), "a gathered metric has not one row a sample on another worker"),
            why="all rows are put in the order of the evaluation set, and others would take their places",
            hint="let rows(outputs, batch) return a tensor of shape (samples, ...) in the order of the batch",
            exit_code=Exit.FAILED,
        )
    measured = {
        name: Measure(value=value / count if count else math.nan, count=count)
        for name, (value, count) in zip(means, table[:-1].tolist(), strict=True)
    }
    for name, parts in own.rows.items():
        metric = task.metrics[name]
        assert isinstance(metric, Gathered)
        measured[name] = Measure(value=float(metric.finish(gather_rows(torch.cat(parts), total))), count=float(total))
    return measured


def remarks(merged: Differing) -> list[str]:
    """What people should know of buffers that differed between workers."""
    notes = []
    if merged.averaged:
        notes.append(
            f"{_buffers(merged.averaged)}: evaluations and checkpoints have their mean over workers, which is right "
            "for running means and wrong for a maximum"
        )
    if merged.replaced:
        notes.append(f"{_buffers(merged.replaced)}: evaluations and checkpoints have the first worker's")
    return notes


def _buffers(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return f"the buffer {names[0]} differs between workers"
    return f"{len(names)} buffers differ between workers, {names[0]} first"


@dataclass
class _Part:
    """What a rank found on its part of the evaluation set.

    Attributes:
        sums: (2,) float64, sum and count, by the name of a mean.
        rows: of gathered metrics.
        samples: that it was given.
        wrong_rows: what is wrong with rows that are not one a sample; those are left out.
    """

    sums: dict[str, Tensor]
    rows: dict[str, list[Tensor]]
    samples: int = 0
    wrong_rows: list[str] = field(default_factory=list)


def _own_part(objective: Objective, task: Task, feed: Feed) -> _Part:
    own = _Part({}, {name: [] for name, m in task.metrics.items() if isinstance(m, Gathered)})
    device = objective.ledger.device

    def add(name: str, value: Any, count: Any) -> None:
        pair = torch.stack([torch.as_tensor(v, dtype=torch.float64, device=device).reshape(()) for v in (value, count)])
        own.sums[name] = own.sums[name] + pair if name in own.sums else pair

    for batch, samples in feed.evaluation(task.eval_batch):
        with objective.autocast():
            loss = task.loss(objective.model, batch)
        add("loss", loss.sum, loss.count)
        own.samples += samples
        for name, metric in task.metrics.items():
            if isinstance(metric, Gathered):
                found = metric.rows(loss.outputs, batch)
                if isinstance(found, Tensor) and found.ndim and len(found) == samples:
                    own.rows[name].append(found)
                else:
                    shown = f"of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
                    own.wrong_rows.append(f"the rows of metric {name} are {shown} for a batch of {samples} samples")
            else:
                value, count = metric(loss.outputs, batch)
                add(name, value, count)
    if own.rows and not own.samples:
        own.rows = _empty_rows(objective, task, feed, own.rows)
    return own


def _empty_rows(objective: Objective, task: Task, feed: Feed, rows: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    """Rows of shape (0, ...) on a rank without samples: the shape has to come from a batch."""
    batch = feed.sample()
    with objective.autocast():
        outputs = task.loss(objective.model, batch).outputs
    return {name: [task.metrics[name].rows(outputs, batch)[:0]] for name in rows}  # type: ignore[union-attr]
