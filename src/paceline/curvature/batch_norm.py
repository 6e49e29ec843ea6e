"""Batch norm for measuring: statistics of the chunk or saved ones, buffers untouched, and quick to differentiate twice.

torch's own second derivative of batch norm is a long chain of elementwise operations, which took two thirds of a
Hessian-vector product of `fashion-mnist`'s CNN. Here it is written out. For one channel of n values, with
u' = (x - mean) / s, s = sqrt(variance + eps), w the weight and P u = u - mean(u) - u' mean(u u'):

    forward     y = w u' + b
    backward    dx = w/s P g,    dw = <g, u'>,    db = <g, 1>
    and of it, for cotangents a of dx, p of dw and q of db, with A1 = <a, u'>, G1 = <g, u'>, D = <a, P g> / s:
        to g    w/s P a + p u' + q
        to w    D
        to x    1/s (p P g - w/(n s) (G1 P a + A1 P g) - w/n D u')

since s moves with x by u'/n, u' by P/s. With saved statistics P is the identity and s is fixed: to x only p g / s
remains. Every line is one or two passes over memory: sums and affine maps are made by torch's own kernels for batch
norm, which know channels-last memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.records.errors import PacelineError


@contextlib.contextmanager
def measuring(model: nn.Module, kind: str, *, twice: bool) -> Iterator[None]:
    """Let every batch norm of `model` normalise as `kind` says, without touching a buffer; put back at the end.

    Args:
        model: in eval mode.
        kind: `batch`, the statistics of what it is given; `saved`, its running ones (where it keeps none: the batch's).
        twice: whether second derivatives will be taken.
    """
    changed: list[tuple[_BatchNorm, dict[str, Any]]] = []
    try:
        for module in model.modules():
            if not isinstance(module, _BatchNorm):
                continue
            changed.append((module, {k: v for k, v in vars(module).items() if k == "forward"}))
            own = kind == "batch" or module.running_mean is None
            vars(module)["forward"] = _forward(module, own, twice)
        yield
    finally:
        for module, before in changed:
            vars(module).pop("forward", None)
            vars(module).update(before)


def check_norms(model: nn.Module, kind: str, smallest_chunk: int) -> None:
    """Refuse a kind, `batch` or `saved`, that a layer of `model` cannot be measured with.

    A subclass of torch's batch norms with a forward of its own (synchronised, ghost) is taken for a plain one over the
    chunk if in eval mode it computes what torch's does; that is tried here on a few numbers.

    Args:
        smallest_chunk: samples in the smallest batch that the model will be given.

    Raises:
        PacelineError: naming the layer.
    """
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm):
            continue
        if (kind == "batch" or module.running_mean is None) and smallest_chunk < 2:
            raise PacelineError(
                f"the batch norm {name} needs chunks of at least 2 samples",
                why="it is normalised by the chunk's own statistics, which are to be those of several samples",
                hint="more samples in a chunk, or batch norm with the saved statistics",
            )
        plain = {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm}
        if type(module) not in plain and type(module).forward is not _BatchNorm.forward and not _is_plain(module):
            raise PacelineError(
                f"the layer {name}, a {type(module).__name__}, is no batch norm whose curvature is known",
                why="its forward computes something else than torch's batch norm",
                hint="derive it from nn.Module instead, so that it is measured as it is",
            )


@torch.no_grad()
def _is_plain(module: _BatchNorm) -> bool:
    """Whether the class's forward, in eval mode, is torch's normalisation by the running statistics."""
    if module.running_mean is None:
        return True  # it then normalises by the batch in eval mode, too, which is what is measured
    channels = module.num_features
    ramp = torch.arange(4.0 * channels, dtype=module.running_mean.dtype, device=module.running_mean.device)
    probe = ramp.view(4, channels).sin()
    for shape in ((4, channels), (4, channels, 1), (4, channels, 1, 1), (4, channels, 1, 1, 1)):
        values = probe.view(shape)
        try:
            module._check_input_dim(values)
        except (ValueError, NotImplementedError):
            continue
        mode, module.training = module.training, False
        try:
            found = type(module).forward(module, values)
        finally:
            module.training = mode
        wanted = functional.batch_norm(
            values, module.running_mean, module.running_var, module.weight, module.bias, False, 0.0, module.eps
        )
        return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-3, atol=1e-5)
    return False


def _forward(module: _BatchNorm, own: bool, twice: bool) -> Callable[[Tensor], Tensor]:
    def forward(values: Tensor) -> Tensor:
        module._check_input_dim(values)
        mean, variance = (None, None) if own else (module.running_mean, module.running_var)
        if not twice:
            return functional.batch_norm(values, mean, variance, module.weight, module.bias, own, 0.0, module.eps)
        weight: Tensor | None = module.weight
        bias: Tensor | None = module.bias
        weight = values.new_ones(values.shape[1]) if weight is None else weight
        bias = values.new_zeros(values.shape[1]) if bias is None else bias
        normalised: Tensor = _Normalise.apply(values, weight, bias, mean, variance, module.eps)
        return normalised

    return forward


class _Normalise(torch.autograd.Function):
    """(values (n, c, ...), weight (c,), bias (c,), mean, variance or None for the values' own, eps) -> normalised."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor | None, variance: Tensor | None, eps: float
    ) -> Tensor:
        ctx.own, ctx.eps = mean is None, eps
        y: Tensor
        y, found, scale = torch.native_batch_norm(x, weight, bias, mean, variance, ctx.own, 0.0, eps)
        if mean is not None and variance is not None:
            found, scale = mean, (variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, found, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        x, weight, mean, scale = ctx.saved_tensors
        found = _Gradient.apply(cotangents[0], x, weight, mean, scale, ctx.own)
        return (*found, None, None, None)


class _Gradient(torch.autograd.Function):
    """(g, x, weight, mean, 1/s, own) -> (dx, dw, db); its backward is the module's docstring in code."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, scale: Tensor, own: bool) -> Any:
        g = _laid_out_as(x, g)
        g1, g0 = _sums(g, x, mean, scale)
        n = x.numel() // x.shape[1]
        ctx.own = own
        ctx.save_for_backward(g, x, weight, mean, scale, g1, g0)
        return _combined(x, mean, scale, *_projected(weight * scale, g1, g0, n, own), (g, weight * scale)), g1, g0

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Any) -> Any:
        g, x, weight, mean, scale, g1, g0 = ctx.saved_tensors
        a, p, q = cotangents
        a = _laid_out_as(x, a)
        n, own = x.numel() // x.shape[1], ctx.own
        a1, a0 = _sums(a, x, mean, scale)
        ag, _ = _sums(a, g, torch.zeros_like(mean), torch.ones_like(scale))
        d = scale * (ag - (a0 * g0 + a1 * g1) / n) if own else scale * ag
        on_a = weight * scale
        along, constant = _projected(on_a, a1, a0, n, own)
        to_g = _combined(x, mean, scale, along + p, constant + q, (a, on_a))
        if not own:
            return to_g, g * _per_channel(p * scale, g), d, None, None, None
        on_a = -weight * scale * scale * g1 / n
        on_g = scale * p - weight * scale * scale * a1 / n
        along_a, constant_a = _projected(on_a, a1, a0, n, own)
        along_g, constant_g = _projected(on_g, g1, g0, n, own)
        along = along_a + along_g - weight * scale * d / n
        to_x = _combined(x, mean, scale, along, constant_a + constant_g, (a, on_a), (g, on_g))
        return to_g, to_x, d, None, None, None


def _projected(factor: Tensor, along: Tensor, plain: Tensor, n: int, own: bool) -> tuple[Tensor, Tensor]:
    """What factor * P u has besides factor * u: how much u', and what constant; along = <u, u'>, plain = <u, 1>."""
    if not own:
        return torch.zeros_like(factor), torch.zeros_like(factor)
    return -factor * along / n, -factor * plain / n


def _combined(
    x: Tensor, mean: Tensor, scale: Tensor, along: Tensor, constant: Tensor, *terms: tuple[Tensor, Tensor]
) -> Tensor:
    """along * (x - mean) * scale + constant + the sum of factor * values over `terms`; factors are per channel."""
    one = torch.ones_like(scale)
    total: Tensor = torch.native_batch_norm(x, along * scale, constant, mean, one, False, 0.0, 0.0)[0]
    for values, factor in terms:
        total.addcmul_(values, _per_channel(factor, values))
    return total


def _sums(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """<g, (x - mean) * scale> and <g, 1> of each channel."""
    _, along, plain = torch.ops.aten.native_batch_norm_backward(
        g, x, None, None, None, mean, scale, True, 0.0, [False, True, True]
    )
    return along, plain


def _per_channel(factor: Tensor, like: Tensor) -> Tensor:
    return factor.view(1, -1, *[1] * (like.ndim - 2))


def _laid_out_as(x: Tensor, values: Tensor) -> Tensor:
    """The kernels are slow where layouts differ."""
    if values.stride() == x.stride():
        return values
    return torch.empty_like(x).copy_(values)
