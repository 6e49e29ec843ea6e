"""What DistributedDataParallel wraps: the task's model and loss together, and the ledger.

**The loss is inside.** DDP synchronises gradients only when its own forward was called. A loss function that gets
the wrapped model may call a part of it and so train without synchronisation, in silence. Here the loss gets the
plain model, DDP wraps both, and there is no way past it.

**The ledger** is a parameter that is never updated. Its gradient is made to be this rank's loss sum, its count and
its wishes to stop or to save, so all are summed over ranks by the all-reduce that the gradients need anyway: the global
loss of every step, the count that a mean has to be divided by, and a stop or a checkpoint on which all ranks agree,
for no message of their own.

**Counts are any numbers**: samples, a billion tokens, weights of 1/60,000. float32 holds no whole number above 2^24
exactly, so a count travels in three parts (`count_parts`), of which the whole ones are exact after the sum over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from paceline.records.errors import PacelineError
from paceline.tasks.contract import gradient_problem, loss_problem
from paceline.tasks.task import Loss

LEDGER = ("loss", "count in 4096s", "count below 4096", "fraction of the count", "terminate", "interrupt", "save")
_HIGH = 4096.0
"""Whole parts below it are exact in float32 when 4096 micro-batches of all ranks add up; counts may reach 2^36."""


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
        ledger: (7,) see `LEDGER`; of the dtype of the model's parameters, so that it shares their bucket.
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
            return torch.add(torch.dot(self.ledger, self.ledger.new_tensor([0.0, 0.0, 0.0, 0.0, *wishes])), nothing)
        with self.autocast():
            loss = self.loss(self.model, batch)
        self.counted = loss.count
        ledger = self.ledger
        parts = [loss.sum.detach().to(ledger.dtype).reshape(1)]
        count = loss.count.detach() if isinstance(loss.count, Tensor) else loss.count
        if isinstance(count, Tensor) and count.device.type != "cpu":  # without waiting for the device
            parts += [*(p.to(ledger.dtype) for p in count_parts(count.reshape(1).double())), ledger.new_tensor(wishes)]
        else:
            parts.append(ledger.new_tensor([*count_parts(float(count)), *wishes]))
        # The ledger is zero, so this adds nothing to the loss; the gradient of the dot product is what we want.
        return torch.add(torch.dot(self.ledger, torch.cat(parts)), loss.sum, alpha=scale)

    def totals(self, world: int) -> Tensor:
        """(7,) the ledger summed over ranks, after the synchronised backward; a copy."""
        if self.ledger.grad is None:
            raise AssertionError("the ledger has no gradient: backward did not run")
        return self.ledger.grad.detach() * world


N = TypeVar("N", float, Tensor)


def count_parts(count: N) -> tuple[N, N, N]:
    """A count as multiples of 4096, a whole number below that, and a fraction, all of the sign of the count.

    Args:
        count: a number, or a tensor of float64.
    """
    if isinstance(count, float) and not math.isfinite(count):
        return count, count, count
    whole = count.trunc() if isinstance(count, Tensor) else float(math.trunc(count))
    high = (whole / _HIGH).trunc() if isinstance(whole, Tensor) else float(math.trunc(whole / _HIGH))
    return high, whole - _HIGH * high, count - whole


def total_count(ledger: Tensor) -> Tensor:
    """() the count of all ranks, on their device, in the dtype of the ledger."""
    whole = ledger[1:3].round()  # the mean over ranks and back has rounded
    return whole[0] * _HIGH + whole[1] + ledger[3]


def read_totals(values: Tensor) -> Totals:
    """The ledger (7,) as numbers; the whole parts of the count are whole again after the mean over ranks."""
    loss, high, low, fraction, terminate, interrupt, save = values.tolist()
    count = high + low + fraction  # not finite where one is not
    if math.isfinite(count):
        count = round(high) * _HIGH + round(low) + fraction
    return Totals(loss, count, terminate > 0, interrupt > 0, save > 0)


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
