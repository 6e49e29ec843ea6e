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

**A parameter may have no gradient in a step**: a branch that was not taken, an expert without a token, a layer that is
frozen for a while. DDP waits for a gradient of every parameter, so one node of the graph reaches them all and gives
each an undefined gradient: DDP gets its call, and nothing is computed. The ledger's own gradient is made last of all in
a backward. By then it is known which parameters this rank has reached, and the ledger counts, for each of them, the
ranks that did. Where no rank has, the gradient becomes None again, as in one process, so that neither weight decay nor
momentum moves the parameter. Only a rank that missed a parameter reads that count. See docs/decisions/0019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.records.errors import PacelineError
from paceline.tasks.contract import gradient_problem, loss_problem
from paceline.tasks.task import Loss
from paceline.train.norms.convert import end_forward, synchronises

LEDGER = ("loss", "count in 4096s", "count below 4096", "fraction of the count", "terminate", "interrupt", "save")
_HIGH = 4096.0
"""Whole parts below it are exact in float32 when 4096 micro-batches of all ranks add up; counts may reach 2^36."""
_UNFROZEN = len(LEDGER)
"""Behind the ledger's named entries: how many ranks have a gradient of a parameter that was frozen at the start."""
_REACHED = _UNFROZEN + 1
"""Then one entry for each trained parameter: how many ranks have reached it."""
_FIRST = 2**62
"""Of the nodes that are ready, autograd runs the one with the largest sequence number."""


@dataclass(frozen=True, slots=True)
class Totals:
    """A step's ledger: sums over all ranks."""

    loss: float
    count: float
    terminate: bool
    interrupt: bool
    save: bool = False


class _TouchAll(torch.autograd.Function):
    """A zero that depends on every tensor it is given, with undefined gradients (empty ones where they are sparse)."""

    @staticmethod
    def forward(ctx: Any, objective: Objective, *edges: Tensor) -> Tensor:
        """A scalar."""
        ctx.objective = objective
        return objective.ledger.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        """DDP takes a sparse gradient for defined, so there it is one without entries."""
        objective = ctx.objective
        found: list[Tensor | None] = [None] * (1 + len(objective.trained))
        for index in objective.sparse:
            found[1 + index] = _no_rows(objective.trained[index])
        return tuple(found)


class _Last(torch.autograd.Function):
    """A zero whose backward runs after that of everything else, and gives the ledger its gradient."""

    @staticmethod
    def forward(ctx: Any, objective: Objective, ledger: Tensor) -> Tensor:
        """A scalar."""
        ctx.objective = objective
        return ledger.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[None, Tensor]:
        """(7 + 1 + parameters,) this rank's part of the ledger."""
        return None, ctx.objective.entries()


class Objective(nn.Module):
    """forward(batch, scale, wishes) -> the number on which backward runs.

    Args:
        model: the task's.
        loss: loss(model, batch) -> Loss.
        autocast: makes the context in which the loss is computed.

    Attributes:
        ledger: (7 + 1 + parameters,) see `LEDGER`; real, and of the precision of the model's parameters, so that it
            shares their bucket.
        trained: the parameters that DDP knows: those that required a gradient at the start.
        sparse: indices in `trained` of those whose gradients are sparse tensors.
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
        self._together = synchronises(model)
        numbers = [p for p in model.parameters() if p.is_floating_point() or p.is_complex()]
        self.trained = [p for p in numbers if p.requires_grad]
        self.sparse: frozenset[int] = frozenset()
        self._frozen = [p for p in numbers if not p.requires_grad]
        self._missed: list[int] = []
        self._idle = self._unfrozen = False
        like = min(self.trained, key=lambda p: p.is_complex())
        self.ledger = nn.Parameter(like.new_zeros(_REACHED + len(self.trained), dtype=like.dtype.to_real()))
        self._row = self.ledger.new_zeros(len(LEDGER))
        self._all_reached = self.ledger.new_tensor([0.0, *[1.0] * len(self.trained)])
        # These nodes are made once. Neither saves a tensor, so both can run in every backward.
        self._touch: Tensor = _TouchAll.apply(self, *self.trained)
        self._last: Tensor = _Last.apply(self, self.ledger)
        _node(self._touch)._set_sequence_nr(_FIRST)
        _node(self._last)._set_sequence_nr(0)

    def forward(self, batch: Any, scale: float, wishes: tuple[float, float, float]) -> Tensor:
        """`scale` * loss sum, with the ledger attached.

        Args:
            batch: a micro-batch, or None when this rank has no sample: then it reaches no parameter, and the model
                does not run, so that its buffers do not see a sample twice. With `empty` the model runs on that.
            scale: factor on the loss sum.
            wishes: terminate, interrupt, save; 1 for yes.
        """
        self._idle = batch is None
        self._spare_hooks()
        batch = self.empty if batch is None else batch
        if batch is None:
            self._row = self.ledger.new_tensor([0.0, 0.0, 0.0, 0.0, *wishes])
            return self._touch + self._last
        loss = self.compute(batch)
        self.counted = loss.count
        ledger = self.ledger
        parts = [loss.sum.detach().to(ledger.dtype).reshape(1)]
        count = loss.count.detach() if isinstance(loss.count, Tensor) else loss.count
        if isinstance(count, Tensor) and count.device.type != "cpu":  # without waiting for the device
            parts += [*(p.to(ledger.dtype) for p in count_parts(count.reshape(1).double())), ledger.new_tensor(wishes)]
        else:
            parts.append(ledger.new_tensor([*count_parts(float(count)), *wishes]))
        self._row = torch.cat(parts)
        # Both are zero, so this adds nothing to the loss.
        return torch.add(self._touch + self._last, loss.sum, alpha=scale)

    def compute(self, batch: Any) -> Loss:
        """The loss of a batch, of no samples also; every rank calls this together where norms are synchronised."""
        with self.autocast():
            loss = self.loss(self.model, batch)
        if self._together:
            end_forward(self.model)
        return loss

    def entries(self) -> Tensor:
        """This rank's part of the ledger, at the end of a backward; a parameter counts with all its micro-batches."""
        self._missed = [index for index, p in enumerate(self.trained) if not self._has_gradient(index, p)]
        self._unfrozen = any(p.grad is not None for p in self._frozen)
        reached = self._all_reached
        if self._missed or self._unfrozen:
            missed = set(self._missed)
            flags = [float(index not in missed) for index in range(len(self.trained))]
            reached = self.ledger.new_tensor([float(self._unfrozen), *flags])
        return torch.cat([self._row, reached])

    def totals(self, world: int) -> Tensor:
        """(7,) the ledger summed over ranks, after the synchronised backward; a copy."""
        if self.ledger.grad is None:
            raise AssertionError("the ledger has no gradient: backward did not run")
        return self.ledger.grad[: len(LEDGER)].detach() * world

    def complete_gradients(self, world: int) -> None:
        """After the synchronised backward: parameters that no rank reached have no gradient, as in one process.

        Gradients of parameters that the model has unfrozen since the start, which DDP does not know, are summed here.
        """
        assert self.ledger.grad is not None
        if self._missed:
            reached = self.ledger.grad[_REACHED:].detach()[self._missed].tolist()
            for index, ranks in zip(self._missed, reached, strict=True):
                if not ranks:
                    self.trained[index].grad = None
        # On CUDA a rank that ran the model believes what it saw, rather than wait for the device in every step.
        asks = self._unfrozen or self._idle or self.ledger.device.type == "cpu"
        if self._frozen and asks and float(self.ledger.grad[_UNFROZEN]):
            _sum_gradients(self._frozen, world)

    def _has_gradient(self, index: int, parameter: Tensor) -> bool:
        gradient = parameter.grad
        return gradient is not None and (index not in self.sparse or gradient._nnz() > 0)

    def _spare_hooks(self) -> None:
        """Hooks on parameters are not called for an undefined gradient, as they are not in one process."""
        for parameter in self.trained:
            if hooks := parameter._backward_hooks:
                for key, hook in hooks.items():
                    if not isinstance(hook, _Spared):
                        hooks[key] = _Spared(hook)


@dataclass(frozen=True, slots=True)
class _Spared:
    """A hook on a gradient that is left alone where there is none."""

    hook: Callable[[Tensor], Any]

    def __call__(self, gradient: Tensor | None) -> Any:
        return None if gradient is None else self.hook(gradient)


def _node(tensor: Tensor) -> Any:
    return tensor.grad_fn


def _no_rows(parameter: Tensor) -> Tensor:
    """A sparse gradient of a (rows, ...) parameter without entries."""
    return torch.sparse_coo_tensor(
        torch.zeros(1, 0, dtype=torch.int64, device=parameter.device),
        parameter.new_zeros(0, *parameter.shape[1:]),
        parameter.shape,
        is_coalesced=True,
        check_invariants=False,
    )


def _sum_gradients(parameters: Sequence[Tensor], world: int) -> None:
    """Means over ranks of the gradients of parameters that any rank has one of; every rank calls this together."""
    counts = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=parameters[0].device)
    dist.all_reduce(counts)
    for parameter, ranks in zip(parameters, counts.tolist(), strict=True):
        if not ranks:
            continue
        own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach().to_dense().contiguous()
        dist.all_reduce(own)
        parameter.grad = own / world


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
