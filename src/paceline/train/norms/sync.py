"""Batch norm whose statistics are those of all ranks' samples, on CPUs, where torch's own refuses.

With x the values of one channel on all ranks together, N of them, and y the output:

    forward     y = w (x - mean) / s + b,            s = sqrt(variance + eps)
    backward    dx = w / s (dy - (G0 + x' G1) / N),  x' = (x - mean) / s,  G0 = sum dy,  G1 = sum dy x'

The sums run over all ranks, so a rank's gradient holds what its samples do to the statistics of all others. Each
direction costs one message of 2 or 3 numbers a channel.

**Statistics travel as (count, mean, sum of squared deviations)** and are put together in the order of ranks (Chan,
Golub and LeVeque 1979). Sums of squares, which would be simpler, cancel in float32 as soon as a mean is large beside
its deviation. Every rank does the same float64 additions in the same order, so all hold the same bits.

**A rank without samples takes part.** It gives zeros, and its output and gradients are empty; if it stayed away the
others would wait for it.

**All ranks must take the same branches.** Where one skips a layer, another's message would meet that of the wrong
layer. So each message of a forward says which layer it is of, all have the same length, and a forward ends with a
message of its own (`end_forward`): ranks that part ways find out, and say so, before any uses the numbers.

The tensors themselves are only touched by torch's own kernels for batch norm, which know channels-last memory and
bfloat16 with float32 statistics.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.parallel.reduce import all_tensors
from paceline.records.errors import Exit, PacelineError

SINGLE_SAMPLE = "batch norm cannot normalise a single sample: its variance is 0"


@dataclass(frozen=True)
class Statistics:
    """Of each channel over all ranks.

    Attributes:
        count: values a channel, 0 when no rank has a sample.
        mean: (channels,) float64.
        squares: (channels,) float64, the sum of squared deviations from the mean.
    """

    count: int
    mean: Tensor
    squares: Tensor


def combine(rows: Sequence[Tensor]) -> Statistics:
    """Put the parts' statistics together in their order.

    Args:
        rows: for each part (1 + 2 * channels,) float64: count, means, sums of squared deviations; it may be empty.
    """
    channels = (len(rows[0]) - 1) // 2
    count = 0
    mean = squares = rows[0].new_zeros(channels)
    for row in rows:
        more = int(row[0])
        if more == 0:
            continue
        own_mean, own_squares = row[1:].split(channels)
        if count == 0:
            count, mean, squares = more, own_mean, own_squares
            continue
        total = count + more
        apart = own_mean - mean
        mean = mean + apart * (more / total)
        squares = squares + own_squares + apart.square() * (count * more / total)
        count = total
    return Statistics(count, mean, squares)


@dataclass(frozen=True)
class Layers:
    """The synchronised norms of a model.

    Attributes:
        names: of each, in one order on all ranks.
        channels: of the widest.
    """

    names: tuple[str, ...]
    channels: int


_END = "the end of the model"


def exchange(own: Tensor, layers: Layers, place: int) -> list[Tensor]:
    """This tensor of each rank, all of which must be at the same layer.

    Args:
        own: (1 + 2 * channels,) float64.
        layers: of the model.
        place: of the layer in `layers.names`, or one more for the end of a forward.

    Raises:
        PacelineError: they are not; on every rank.
    """
    message = own.new_zeros(2 + 2 * layers.channels)
    message[0] = place
    message[1 : 1 + len(own)] = own
    rows = all_tensors(message)  # for so few numbers it takes less time than a sum, and the order is ours
    places = [int(row[0]) for row in rows]
    if len(set(places)) > 1:
        names = (*layers.names, _END)
        odd = next(rank for rank, other in enumerate(places) if other != places[0])
        raise PacelineError(
            "workers took different branches through a model with synchronised batch norm",
            why=f"worker 0 is at {names[places[0]]}, worker {odd} at {names[places[odd]]}",
            hint="--batch-norm local or ghost; or let no branch depend on random numbers or samples, which differ "
            "between workers",
            exit_code=Exit.FAILED,
        )
    return [row[1 : 1 + len(own)] for row in rows]


def end_forward(layers: Layers, device: torch.device) -> None:
    """Agree that all ranks are through the model; every rank calls this after each of its forwards in training."""
    exchange(torch.zeros(1, dtype=torch.float64, device=device), layers, len(layers.names))


def global_statistics(values: Tensor, layers: Layers, place: int) -> Statistics:
    """Mean and squared deviations of each channel over all ranks, the same bits on every rank.

    Args:
        values: (samples, channels, ...), samples may be 0; dense.
        layers: of the model.
        place: of this layer among them.
    """
    channels = values.shape[1]
    count = values.numel() // channels
    if count == 0:
        nothing = torch.zeros(1 + 2 * channels, dtype=torch.float64, device=values.device)
        return combine(exchange(nothing, layers, place))
    # Asked with float32 buffers, the kernel computes in float32 also for 16-bit values; it may write to them.
    like = torch.zeros(2, channels, dtype=statistics_dtype(values), device=values.device)
    mean, variance = torch.batch_norm_update_stats(values, like[0], like[1], 0.0)
    counted = torch.tensor([count], dtype=torch.float64, device=values.device)
    return combine(exchange(torch.cat([counted, mean.double(), variance.double() * count]), layers, place))


def dense(values: Tensor, like: Tensor | None = None) -> Tensor:
    """`values` without gaps in memory: channels last if they (or `like`) are so, else channels first."""
    guide = values if like is None else like
    for ndim, layout in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if guide.ndim == ndim and not guide.is_contiguous() and guide.is_contiguous(memory_format=layout):
            return values.contiguous(memory_format=layout)
    return values.contiguous()


class _Normalise(torch.autograd.Function):
    """The normalisation, and the gradient through it and through the statistics of all ranks.

    There is no second derivative: it would need collectives of its own. torch's decorator for such cases,
    once_differentiable, lets terms disappear in silence where derivatives of chosen tensors are asked for, so here a
    graph of gradients is refused at once.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor, bias: Tensor, moments: Tensor, count: int, eps: float
    ) -> Tensor:
        """values (samples, channels, ...); weight, bias (channels,); moments (2, channels): mean, biased variance."""
        ctx.save_for_backward(values, weight, moments)
        ctx.count, ctx.eps = count, eps
        if values.numel() == 0:  # some of torch's kernels for batch norm divide by the number of samples
            return torch.empty_like(values)
        return functional.batch_norm(values, moments[0], moments[1], weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of values, weight and bias; those of the latter two are this rank's, DDP sums them."""
        if torch.is_grad_enabled():
            raise PacelineError(
                "synchronised batch norm has no second derivative",
                why="gradients were asked for with create_graph=True",
                hint="load the weights into the model with --batch-norm local, which they fit",
                exit_code=Exit.FAILED,
            )
        values, weight, moments = ctx.saved_tensors
        empty, wanted = values.numel() == 0, ctx.needs_input_grad[0]
        mixed = values.dtype != weight.dtype
        direct: Tensor | None = None
        of_weight, of_bias = torch.zeros_like(weight), torch.zeros_like(weight)
        if not empty:
            above = dense(above, values)  # the kernel is several times slower where layouts differ
            # With its `train` off this kernel takes the statistics for constants: (w / s) dy, sum dy x', sum dy.
            direct, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
                above, values, weight, *moments, None, None, False, ctx.eps, [mixed and wanted, True, True]
            )
        if not wanted:
            return None, of_weight, of_bias, None, None, None
        sums = functools.reduce(torch.add, all_tensors(torch.stack([of_weight, of_bias]).double()))
        if empty:
            return torch.empty_like(values), of_weight, of_bias, None, None, None
        slope = weight.double() / (moments[1].double() + ctx.eps).sqrt()
        through = (sums * (-slope / ctx.count)).to(weight.dtype)
        # -(w / s) (x' G1 + G0) / N has the form of a batch norm of x.
        of_values = functional.batch_norm(values, moments[0], moments[1], through[0], through[1], False, 0.0, ctx.eps)
        if direct is not None:
            of_values += direct
        else:  # one pass less, where no rounding to 16 bits comes between
            of_values.addcmul_(above, slope.to(above.dtype).view(1, -1, *[1] * (above.ndim - 2)))
        return of_values, of_weight, of_bias, None, None, None


@torch.no_grad()
def update_running(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics once: by the module's momentum, or to the mean over all updates where it is None.

    Nothing happens where the module does not track them.

    Args:
        norm: in training mode.
        mean: (channels,) of what it has just seen.
        variance: (channels,) likewise, unbiased, as torch keeps it.
    """
    if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
        return
    weight = norm.momentum if norm.momentum is not None else 0.0
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if norm.momentum is None:
            weight = 1.0 / float(norm.num_batches_tracked)
    for running, new in ((norm.running_mean, mean), (norm.running_var, variance)):
        running.mul_(1.0 - weight).add_(new.to(running.dtype), alpha=weight)


def statistics_dtype(values: Tensor) -> torch.dtype:
    """In which statistics of `values` are computed: float32 for 16-bit values, else their own."""
    return torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype


class Synchronised(_BatchNorm):
    """What makes one of torch's batch norms synchronised; in eval mode it is torch's.

    Attributes:
        layers, place: where it stands among those of its model; set by `convert.with_batch_norm`.
    """

    layers: Layers | None = None
    place: int = 0

    def forward(self, values: Tensor) -> Tensor:
        """Normalise (samples, channels, ...); in training every rank must call this together.

        Raises:
            PacelineError: the ranks together have one value a channel, which has no variance.
        """
        if not self.training:
            output: Tensor = super().forward(values)
            return output
        self._check_input_dim(values)  # type: ignore[no-untyped-call]
        values = dense(values)
        layers = self.layers or Layers(("a batch norm",), self.num_features)
        found = global_statistics(values.detach(), layers, self.place)
        if found.count == 1:
            raise PacelineError(
                SINGLE_SAMPLE,
                why="all workers together have one value for each channel",
                hint="a batch of at least two samples, also at the end of an epoch",
                exit_code=Exit.FAILED,
            )
        if found.count:
            update_running(self, found.mean, found.squares / (found.count - 1))
        dtype = statistics_dtype(values)
        moments = torch.stack([found.mean, found.squares / max(1, found.count)]).to(dtype)
        weight = torch.ones_like(moments[0]) if self.weight is None else self.weight.to(dtype)
        bias = torch.zeros_like(moments[0]) if self.bias is None else self.bias.to(dtype)
        normalised: Tensor = _Normalise.apply(values, weight, bias, moments, found.count, self.eps)
        return normalised
