"""What DistributedDataParallel wraps: the task's model and loss together, and the ledger.

**The loss is inside.** DDP synchronises gradients only when its own forward was called. A loss function that gets
the wrapped model may call a part of it and so train without synchronisation, in silence. Here the loss gets the
plain model, DDP wraps both, and there is no way past it.

**The ledger** is a parameter that is never updated. Its gradient is made to be this rank's loss sum, its count and
its wishes to stop or to save, so all are summed over ranks by the all-reduce that the gradients need anyway: the global
loss of every step, the count that a mean has to be divided by, and a stop or a checkpoint on which all ranks agree,
for no message of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paceline.records.errors import PacelineError
from paceline.tasks.contract import gradient_problem, loss_problem
from paceline.tasks.task import Loss

LEDGER = ("loss", "count", "terminate", "interrupt", "save")


@dataclass(frozen=True, slots=True)
class Totals:
    """A step's ledger: sums over all ranks."""

    loss: float
    count: float
    terminate: bool
    interrupt: bool
    save: bool = False


class Objective(nn.Module):
    """forward(batch, scale, flags) -> the number on which backward runs.

    Args:
        model: the task's.
        loss: loss(model, batch) -> Loss.
        autocast: makes the context in which the loss is computed.

    Attributes:
        ledger: (5,) see `LEDGER`; of the dtype of the model's parameters, so that it shares their bucket.
        empty: a batch of no samples, for a model that has to run on every rank even where there is no sample
            (synchronised batch norm); None for all others.
        counted: what the last forward counted, a number or a tensor.
    """

    empty: Any = None
    counted: Any = 0

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module, Any], Loss],
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.autocast = autocast
        like = next(p for p in model.parameters() if p.requires_grad)
        self.ledger = nn.Parameter(like.new_zeros(len(LEDGER)))

    def forward(self, batch: Any, scale: float, wishes: tuple[float, float, float]) -> Tensor:
        """`scale` * loss sum, with the ledger attached.

        Args:
            batch: a micro-batch, or None when this rank has no sample: the gradients are then zeros, without
                running the model, so that its buffers do not see a sample twice. With `empty` the model runs on that.
            scale: factor on the loss sum.
            wishes: terminate, interrupt, save; 1 for yes.
        """
        batch = self.empty if batch is None else batch
        if batch is None:
            trained = [p for p in self.model.parameters() if p.requires_grad]
            nothing = torch.stack([p.flatten()[:0].sum() for p in trained]).sum()
            return torch.add(torch.dot(self.ledger, self.ledger.new_tensor([0.0, 0.0, *wishes])), nothing)
        with self.autocast():
            loss = self.loss(self.model, batch)
        self.counted = loss.count
        dtype = self.ledger.dtype
        parts = [loss.sum.detach().to(dtype).reshape(1)]
        if isinstance(loss.count, Tensor):
            parts += [loss.count.detach().to(dtype).reshape(1), self.ledger.new_tensor(wishes)]
        else:
            parts.append(self.ledger.new_tensor([loss.count, *wishes]))
        # The ledger is zero, so this adds nothing to the loss; the gradient of the dot product is what we want.
        return torch.add(torch.dot(self.ledger, torch.cat(parts)), loss.sum, alpha=scale)

    def totals(self, world: int) -> Tensor:
        """(5,) the ledger summed over ranks, after the synchronised backward; a copy."""
        if self.ledger.grad is None:
            raise AssertionError("the ledger has no gradient: backward did not run")
        return self.ledger.grad.detach() * world


def read_totals(values: Tensor) -> Totals:
    """The ledger as numbers; counts are whole unless they are weights, so a rounding of their mean is undone."""
    loss, count, terminate, interrupt, save = values.tolist()
    whole = float(round(count)) if math.isfinite(count) else count
    return Totals(loss, whole if abs(count - whole) < 1e-3 else count, terminate > 0, interrupt > 0, save > 0)


def check_loss(loss: Any, task: str, samples: int | None) -> None:
    """Refuse a loss function that does not keep its contract, with words instead of a wrong mean.

    Args:
        loss: what it returned, computed with gradients.
        task: its name.
        samples: in the batch, where the task counts samples.

    Raises:
        PacelineError: not a Loss, not a scalar, without a gradient, or a count that is not the number of samples
            it promised.
    """
    problem = loss_problem(loss, samples) or gradient_problem(loss)
    if problem is not None:
        raise PacelineError(f"the loss of task {task} {problem.what}", why=problem.why, hint=problem.hint)
