"""What is trained: a model, a loss that says over how many it sums, and data.

A loss returns a *sum and a count*, never a mean, because means cannot be put together again: the mean over ranks,
micro-batches and an uneven last batch is sum of sums / sum of counts, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Arrays
from paceline.tasks.table import Defaults


@dataclass(frozen=True, slots=True)
class Loss:
    """What a loss function returns for one batch.

    Attributes:
        sum: () the loss summed over what is counted; backward runs on it.
        count: how many that are: samples, or tokens, or a sum of weights.
        outputs: what metrics need, so that one forward serves both (for instance logits).
    """

    sum: Tensor
    count: Tensor | float
    outputs: Any = None


Metric = Callable[[Any, Any], tuple[Tensor | float, Tensor | float]]
"""metric(outputs, batch) -> (sum, count), a mean once it is divided."""


@dataclass(frozen=True)
class Gathered:
    """A metric that is no mean (AUC, F1 ...): rows of all ranks are put in the order of the evaluation set first.

    Attributes:
        rows: rows(outputs, batch) -> (batch, ...) one row a sample.
        finish: finish(all rows) -> the number.
    """

    rows: Callable[[Any, Any], Tensor]
    finish: Callable[[Tensor], float]


@dataclass(frozen=True)
class Task:
    """Everything the trainer needs to know.

    Attributes:
        name: for people and file names.
        model: builds a fresh module; random numbers come from torch's global generator, seeded before.
        loss: loss(model, batch) -> Loss. `model.training` tells training from evaluation.
        train_data: `Arrays`, or a map-style dataset (`len(d)`, `d[i]`), which goes through DataLoader workers.
        eval_data: likewise.
        metrics: by name; each from the outputs of the loss's one forward.
        count: "samples" when the loss counts exactly the samples of its batch (gradients are then scaled
            beforehand), "reported" when only the loss knows (tokens, weights).
        loss_scope: "sample" when the loss of a batch is the sum of its samples' losses; "per_rank" when samples that
            a rank has in one micro-batch see each other by design (in-batch negatives), so that the result depends
            on the number of workers and on --accumulate.
        defaults: what it trains with when the user does not say otherwise.
        eval_batch: samples that a rank holds at once while evaluating.
        data_source: where the data came from, for the record.
        unit: what `Loss.count` counts, in the plural, where that is not samples: `tokens`. Speeds are shown in it too.
    """

    name: str
    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Any], Loss]
    train_data: Any
    eval_data: Any
    metrics: Mapping[str, Metric | Gathered] = field(default_factory=dict)
    count: Literal["samples", "reported"] = "reported"
    defaults: Defaults = field(default_factory=Defaults)
    eval_batch: int = 250
    data_source: str = ""
    loss_scope: Literal["sample", "per_rank"] = "sample"
    unit: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.metrics, Mapping) and "loss" in self.metrics:  # the two would be added up
            raise PacelineError(
                f"a metric of task {self.name} is called loss",
                why="the loss is measured anyway, under that name",
                hint="leave it out, or give it another name",
            )


def accuracy(outputs: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """Right answers and how many were asked: logits (batch, classes) against labels (batch,)."""
    labels = batch[1]
    return (outputs.argmax(dim=1) == labels).sum(), len(labels)


__all__ = ["Arrays", "Defaults", "Gathered", "Loss", "Metric", "Task", "accuracy"]
