"""The loss as a function of the weights, on a fixed set of samples: value, gradient, Hessian times a vector.

    L(w) = (sum of the task's loss sums) / (sum of its counts)    over samples 0..n of the data, in their order

**The work is cut in the same way for every number of workers.** Samples are cut into chunks, chunks into consecutive
pieces. A rank adds up the chunks of a piece in order; the pieces of all ranks are added in order (`parallel.ordered`).
So 1, 2 or 7 workers with equally many threads each get the same bits.

**float32 is float32.** Convolutions and products do without TF32 here, which torch takes for the former on CUDA devices
unless told otherwise: it keeps 10 bits of each factor, and a residual or a rise of the loss would be its rounding.

**A measurement leaves no trace.** Weights, their `.grad`, the modes of modules, buffers and random state come back as
they were, also after an exception.

**The Hessian times a vector** is the derivative of <gradient, vector> (Pearlmutter 1994), by differentiating the
backward pass. Measured on one thread with `fashion-mnist`'s CNN (docs/decisions/0011): faster than forward-mode over
reverse-mode, once the second derivative of batch norm is written out (`batch_norm.py`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from paceline.curvature.batch_norm import check_norms, measuring
from paceline.curvature.chunks import Chunks
from paceline.curvature.double_backward import enough_memory_for, product, refuse_once_differentiable
from paceline.curvature.side_effects import full_float32, seed_chunk, untouched
from paceline.curvature.weights import FlatWeights
from paceline.parallel.ordered import add_in_order, ordered_sum
from paceline.parallel.partition import split
from paceline.records.errors import PacelineError
from paceline.tasks.contract import Problem, gradient_problem, loss_problem
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Gathered, Loss, Metric, Task

_PIECES = 48
"""Partial sums, at most: enough for so many workers."""
_PIECES_BYTES = 1 << 30
"""All ranks' partial sums of a gradient together, about: ranks but the first hold theirs until their turn. Large models
get fewer of them, but 8 at least."""


@dataclass(frozen=True)
class Value:
    """What L is at a point.

    Attributes:
        loss: the mean, over what the task's loss counts.
        metrics: the task's metrics that are means; NaN where nothing was counted.
    """

    loss: float
    metrics: dict[str, float]


class FixedLoss:
    """L(w) of a task's model on the first `samples` samples of `data`, unaugmented, the model in eval mode.

    The model stays the caller's; every method puts it back as it was. Its weights may change between calls.

    Args:
        task: gives the loss and the metrics.
        model: in the dtype, memory layout and on the device of `like`; not wrapped in DDP.
        data: `Arrays` or a map-style dataset.
        like: what batches shall be like.
        samples: 1 or more.
        chunk: samples at once, at most; with `batch_norm="batch"` a part of the definition of L.
        batch_norm: `batch`: each chunk is normalised by its own statistics, whatever kind of batch norm the model
            trains with; `saved`: by the running statistics.

    Attributes:
        size: P, how many numbers are trained.
        samples: as given.
        layout: where each trained parameter stands in a flat vector.

    Raises:
        PacelineError: a setting out of range, or a model without trained parameters.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        data: Any,
        like: Like,
        *,
        samples: int,
        chunk: int = 250,
        batch_norm: str = "batch",
    ) -> None:
        self._task, self._model, self._batch_norm = task, model, batch_norm
        self._device = like.device
        self._weights = FlatWeights(model)
        self._chunks = Chunks(data, like, samples, chunk)
        check_norms(model, batch_norm, self._chunks.smallest)
        affordable = _PIECES_BYTES // (max(1, self._weights.size) * self._weights.dtype.itemsize)
        pieces = min(_PIECES, len(self._chunks), max(8, affordable))
        self._pieces = [split(len(self._chunks), pieces, piece) for piece in range(pieces)]
        self._metrics: dict[str, Metric] = {
            name: metric for name, metric in task.metrics.items() if not isinstance(metric, Gathered)
        }
        self._twice_checked = False
        self.samples = samples
        self.size = self._weights.size
        self.layout = self._weights.layout

    def point(self) -> Tensor:
        """(P,) the model's present weights, a copy, in their (widest) dtype."""
        return self._weights.point()

    def value(self, point: Tensor) -> Value:
        """L and the metrics at `point` (P,); all ranks together, the same bits on each."""
        with self._at(point, twice=False), torch.no_grad():
            return self._as_value(ordered_sum(self._tables(self._own_pieces())))

    def value_alone(self, point: Tensor) -> Value:
        """The same number as `value`, bit for bit, by this rank alone and without a message."""
        with self._at(point, twice=False), torch.no_grad():
            table = add_in_order(self._tables(self._pieces))
        assert table is not None
        return self._as_value(table)

    def gradient(self, point: Tensor) -> tuple[float, Tensor]:
        """L and its gradient (P,) at `point` (P,); all ranks together, the same bits on each."""
        with self._at(point, twice=False):
            table, flat = self._summed(self._chunk_gradient)
        loss, count = table[0].tolist()
        return loss / count, flat.div_(count)

    def hvp(self, point: Tensor, vector: Tensor) -> Tensor:
        """The Hessian of L at `point` (P,) times `vector` (P,); all ranks together, the same bits on each.

        Raises:
            PacelineError: the loss cannot be differentiated twice.
        """
        directions = self._weights.split(vector)
        with self._at(point, twice=True):
            table, flat = self._summed(lambda loss: self._chunk_product(loss, directions))
        return flat.div_(float(table[0, 1]))

    def require_second_derivative(self) -> None:
        """Try a product on the first chunk at the present weights, by this rank alone and without a message.

        Raises:
            PacelineError: the loss cannot be differentiated twice.
        """
        directions = self._weights.split(torch.ones_like(self.point()))
        with self._at(self.point(), twice=True), enough_memory_for(len(self._chunks.spans[0])):
            loss, _ = self._loss(0)
            self._refuse(gradient_problem(loss))
            self._chunk_product(loss.sum.reshape(()), directions)

    @contextlib.contextmanager
    def _at(self, point: Tensor, *, twice: bool) -> Iterator[None]:
        # Attention's fused kernels have no second derivative; torch's plain one has.
        attention = sdpa_kernel(SDPBackend.MATH) if twice else contextlib.nullcontext()
        with (
            attention,
            untouched(self._model, self._device),
            full_float32(),
            measuring(self._model, self._batch_norm, twice=twice),
            self._weights.at(point),
            torch.autocast(self._device.type, enabled=False),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield

    def _own_pieces(self) -> list[range]:
        world, rank = 1, 0
        if torch.distributed.is_initialized():
            world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        own = split(len(self._pieces), world, rank)
        return self._pieces[own.start : own.stop]

    def _loss(self, chunk: int) -> tuple[Loss, Any]:
        batch = self._chunks.batch(chunk)
        seed_chunk(chunk, self._device)
        loss = self._task.loss(self._model, batch)
        self._refuse(loss_problem(loss, None))
        return loss, batch

    def _tables(self, pieces: list[range]) -> Iterator[Tensor]:
        """For each piece (1 + metrics, 2) float64: sum and count of the loss and of each metric."""
        for piece in pieces:
            table = add_in_order(self._chunk_table(chunk) for chunk in piece)
            assert table is not None
            yield table

    def _chunk_table(self, chunk: int) -> Tensor:
        with enough_memory_for(len(self._chunks.spans[chunk])):
            loss, batch = self._loss(chunk)
            pairs = [(loss.sum, loss.count), *(metric(loss.outputs, batch) for metric in self._metrics.values())]
        return torch.stack([_pair(total, count) for total, count in pairs])

    def _as_value(self, table: Tensor) -> Value:
        means = [total / count if count else math.nan for total, count in table.tolist()]
        return Value(means[0], dict(zip(self._metrics, means[1:], strict=True)))

    def _summed(self, per_chunk: Callable[[Tensor], list[Tensor]]) -> tuple[Tensor, Tensor]:
        """(1, 2) loss sum and count, and (P,) the sum of what `per_chunk` makes of a chunk's loss, over all ranks."""
        tables: list[Tensor] = []

        def flats() -> Iterator[Tensor]:
            for piece in self._own_pieces():
                table, total = torch.zeros(1, 2, dtype=torch.float64), None
                for chunk in piece:
                    with enough_memory_for(len(self._chunks.spans[chunk])):
                        loss, _ = self._loss(chunk)
                        self._refuse(gradient_problem(loss))
                        parts = per_chunk(loss.sum.reshape(()))
                    table += _pair(loss.sum.detach(), loss.count)
                    total = add_in_order([self._weights.join(parts)], total)
                    del loss, parts  # the graph of a chunk must be gone before the next one's grows
                assert total is not None
                tables.append(table)
                yield total

        flat = ordered_sum(flats()).to(self._device)
        table = ordered_sum(tables)
        if not float(table[0, 1]):
            raise PacelineError(f"the loss of task {self._task.name} counts nothing", why="its counts add up to 0")
        return table.cpu(), flat

    def _chunk_gradient(self, total: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(total, self._weights.parameters, materialize_grads=True))

    def _chunk_product(self, total: Tensor, directions: list[Tensor]) -> list[Tensor]:
        if not self._twice_checked:
            refuse_once_differentiable(total, self._task.name)
            self._twice_checked = True
        return product(total, self._weights.parameters, directions, self._task.name)

    def _refuse(self, problem: Problem | None) -> None:
        if problem is not None:
            raise PacelineError(
                f"the loss of task {self._task.name} {problem.what}", why=problem.why, hint=problem.hint
            )


def _pair(total: Any, count: Any) -> Tensor:
    """(2,) float64, on the CPU."""
    return torch.stack([torch.as_tensor(each).detach().to("cpu", torch.float64).reshape(()) for each in (total, count)])
