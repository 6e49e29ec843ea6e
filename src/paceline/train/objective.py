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
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.records.errors import Exit, PacelineError
from paceline.tasks.task import Loss, Task
from paceline.train.norms.convert import end_forward, synchronises

LEDGER = ("loss", "count in 4096s", "count below 4096", "fraction of the count", "terminate", "interrupt", "save")
_HIGH = 4096.0
"""Whole parts below it are exact in float32 when 4096 micro-batches of all ranks add up; counts may reach 2^36."""
_UNFROZEN = len(LEDGER)
"""Behind the ledger's named entries: how many ranks have a gradient of a parameter that was frozen at the start."""
_REACHED = _UNFROZEN + 1
"""Then one entry for each trained parameter: how many ranks have reached it."""
_FIRST, _LAST = 2**62, 0
"""Of the nodes that are ready, autograd runs the one with the largest sequence number."""


@dataclass(frozen=True, slots=True)
class Totals:
    """A step's ledger: sums over all ranks."""

    loss: float
    count: float
    terminate: bool
    interrupt: bool
    save: bool = False


class _NoRows(torch.autograd.Function):
    """A zero that depends on the parameters it is given, with gradients without entries: DDP takes none for defined."""

    @staticmethod
    def forward(ctx: Any, zero: Tensor, *parameters: Tensor) -> Tensor:
        """A scalar."""
        ctx.parameters = parameters
        return zero.clone()

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        """Sparse tensors."""
        return None, *map(_no_rows, ctx.parameters)


@dataclass(slots=True)
class _Part:
    """This rank's part of a step. Not attributes of the module, which are slow to set.

    Attributes:
        row: (7 + 1 + parameters,) what is added to the ledger.
        idle: the forward had no sample.
        missed: indices of trained parameters that this rank has not reached.
        unfrozen: a parameter that was frozen at the start has a gradient.
        counted: what the last forward counted, a number or a tensor.
    """

    row: Tensor
    idle: bool = False
    missed: list[int] = field(default_factory=list)
    unfrozen: bool = False
    counted: Any = 0


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
        spoiled: gives 0, or NaN where gradients of a step did not survive their way between ranks; None where they do.
    """

    empty: Any = None
    spoiled: Callable[[], Tensor | float] | None = None

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
        self._frozen = [p for p in numbers if not p.requires_grad]
        like = min(self.trained, key=lambda p: p.is_complex())
        self.ledger = nn.Parameter(like.new_zeros(_REACHED + len(self.trained), dtype=like.dtype.to_real()))
        self._part = _Part(torch.zeros_like(self.ledger))
        self._all_reached = [0.0, *[1.0] * len(self.trained)]
        self._all_reached_there = self.ledger.new_tensor(self._all_reached)
        self.ledger.register_hook(lambda _: self.entries())
        self.expect_sparse(frozenset())

    @property
    def counted(self) -> Any:
        """What the last forward counted, a number or a tensor."""
        return self._part.counted

    def expect_sparse(self, indices: frozenset[int]) -> None:
        """Say which of `trained` have sparse gradients, before DDP is made."""
        self.sparse = indices
        zero = self.ledger.new_zeros(())
        rows = [self.trained[index] for index in sorted(indices)]
        rest = [p for index, p in enumerate(self.trained) if index not in indices]
        # Each of these nodes is made once. None saves a tensor, so all can run in every backward. That of a list of
        # tensors gives an undefined gradient to those whose results are not used. They are computed once, here, which
        # takes the memory of the parameters for a moment, before gradients and optimizer have theirs.
        touches = [torch._foreach_neg([zero, *rest])[0]] if rest else []
        touches += [_NoRows.apply(zero, *rows)] if rows else []
        self._zero = self.ledger.sum()
        _run_at(self._zero, _LAST)
        for touch in touches:
            _run_at(touch, _FIRST)
            self._zero = self._zero + touch
            _run_at(self._zero, _FIRST)

    def forward(self, batch: Any, scale: float, wishes: tuple[float, float, float]) -> Tensor:
        """`scale` * loss sum, with the ledger attached.

        Args:
            batch: a micro-batch, or None when this rank has no sample: then it reaches no parameter, and the model
                does not run, so that its buffers do not see a sample twice. With `empty` the model runs on that.
            scale: factor on the loss sum.
            wishes: terminate, interrupt, save; 1 for yes.
        """
        part = self._part
        part.idle = batch is None
        self._spare_hooks()
        batch = self.empty if batch is None else batch
        if batch is None:
            part.row = self.ledger.new_tensor([0.0, 0.0, 0.0, 0.0, *wishes, *self._all_reached])
            return self._zero
        loss = self.compute(batch)
        part.counted = loss.count
        part.row = self._note(loss, wishes)
        return torch.add(self._zero, loss.sum, alpha=scale)

    def _note(self, loss: Loss, wishes: tuple[float, float, float]) -> Tensor:
        """The ledger's entries of a loss that reaches every parameter; the host does not wait for a device."""
        ledger, total = self.ledger, loss.sum.detach()
        count = loss.count.detach() if isinstance(loss.count, Tensor) else loss.count
        if total.device.type == "cpu" and ledger.device.type == "cpu":
            return ledger.new_tensor([float(total), *count_parts(float(count)), *wishes, *self._all_reached])
        parts = [total.to(ledger.dtype).reshape(1)]
        if isinstance(count, Tensor) and count.device.type != "cpu":
            parts += [part.to(ledger.dtype) for part in count_parts(count.reshape(1).double())]
            parts.append(ledger.new_tensor(wishes))
        else:
            parts.append(ledger.new_tensor([*count_parts(float(count)), *wishes]))
        return torch.cat([*parts, self._all_reached_there])

    def compute(self, batch: Any) -> Loss:
        """The loss of a batch, of no samples also; every rank calls this together where norms are synchronised."""
        with self.autocast():
            loss = self.loss(self.model, batch)
        if self._together:
            end_forward(self.model)
        return loss

    def entries(self) -> Tensor:
        """This rank's part of the ledger, at the end of a backward; a parameter counts with all its micro-batches."""
        part = self._part
        part.missed = [index for index, p in enumerate(self.trained) if p.grad is None]
        part.missed += [index for index in self.sparse if (g := self.trained[index].grad) is not None and not g._nnz()]
        part.unfrozen = any(p.grad is not None for p in self._frozen)
        if part.missed or part.unfrozen:
            missed = set(part.missed)
            flags = [float(index not in missed) for index in range(len(self.trained))]
            part.row[_UNFROZEN:] = part.row.new_tensor([float(part.unfrozen), *flags])
        return part.row

    def totals(self, world: int) -> Tensor:
        """(7,) the ledger summed over ranks, after the synchronised backward; a copy."""
        if self.ledger.grad is None:
            raise AssertionError("the ledger has no gradient: backward did not run")
        totals = self.ledger.grad[: len(LEDGER)].detach() * world
        if self.spoiled is not None:
            totals[0] += self.spoiled()
        return totals

    def complete_gradients(self, world: int) -> None:
        """After the synchronised backward: parameters that no rank reached have no gradient, as in one process.

        Gradients of parameters that the model has unfrozen since the start, which DDP does not know, are summed here.
        """
        part, ledger = self._part, self.ledger.grad
        assert ledger is not None
        if part.missed:
            reached = ledger[_REACHED:].detach()[part.missed].tolist()
            for index, ranks in zip(part.missed, reached, strict=True):
                if not ranks:
                    self.trained[index].grad = None
        # On CUDA a rank that ran the model believes what it saw, rather than wait for the device in every step.
        asks = part.unfrozen or part.idle or ledger.device.type == "cpu"
        if self._frozen and asks and float(ledger[_UNFROZEN]):
            _sum_gradients(self._frozen, world)

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


def _run_at(tensor: Tensor, sequence_number: int) -> None:
    """Give the node that made a tensor its place in every backward."""
    node: Any = tensor.grad_fn
    node._set_sequence_nr(sequence_number)


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


CUDA_LAG = 2


class LedgerReader:
    """Reads the ledger without stopping the device: first in, first out, `lag` steps later.

    On a CPU the numbers of a step are there when its backward ends. On CUDA asking for them would make the host wait
    for the device at every step, so they are copied aside and read two steps later, by when they have long arrived. The
    lag is the same on all ranks, so what is decided on them is decided on the same step everywhere.

    Args:
        device: of the model.
    """

    def __init__(self, device: torch.device) -> None:
        self.lag = CUDA_LAG if device.type == "cuda" else 0
        self._waiting: deque[tuple[Tensor, Any]] = deque()

    def push(self, values: Tensor) -> list[Totals]:
        """Take (7,) values of this step; return what can be read now, oldest first."""
        if self.lag == 0:
            return [read_totals(values)]
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._waiting.append((host, event))
        return self._take(self.lag)

    def drain(self) -> list[Totals]:
        """Everything that is still on its way."""
        return self._take(0)

    def _take(self, leave: int) -> list[Totals]:
        read = []
        while len(self._waiting) > leave:
            host, event = self._waiting.popleft()
            event.synchronize()
            read.append(read_totals(host))
        return read


class Counts:
    """Checks what the loss counts in each step, on numbers that are equal on all ranks.

    Args:
        task: with count="samples" its loss has to count each sample of a batch once.
        samples: used before the first step that is checked.
    """

    def __init__(self, task: Task, samples: int) -> None:
        self._task = task
        self._counted = float(samples)
        self._told = False

    def check(self, count: float, step: int, samples: int) -> str:
        """Take in a step.

        Args:
            count: of the step.
            step: its number.
            samples: used up to and with it.

        Returns:
            a note for people, or nothing.

        Raises:
            PacelineError: a count below 0, or one that is not the number of samples where that was promised.
        """
        name = self._task.name
        if count < 0:
            raise PacelineError(
                f"the loss of task {name} counts {count:g} at step {step}",
                why="a mean over a negative count would turn the gradient around",
                hint="let Loss.count be the number of samples or tokens, or a sum of weights of 0 and more",
                exit_code=Exit.FAILED,
            )
        before, self._counted = self._counted, self._counted + count
        if self._task.count == "samples" and self._counted != samples:
            raise PacelineError(
                f"the loss of task {name} counts {count:g} where batch {step} has {samples - before:g} samples",
                why='the Task promises count="samples", and gradients are scaled by that',
                hint='leave count="samples" out of the Task: the count is then taken from the loss. '
                "Or let the collate function keep every sample",
                exit_code=Exit.FAILED,
            )
        if count or self._told:
            return ""
        self._told = True
        return (
            f"step {step}: the counts of the loss add up to 0, so this batch has no loss and its gradient is taken "
            "as 0; further such steps are not noted"
        )
