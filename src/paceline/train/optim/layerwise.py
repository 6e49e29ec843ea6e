"""Layer-wise optimizers: LARS, LAMB and NovoGrad, which look at the norm of each tensor, and Muon, which looks at its
singular values.

All arithmetic is on whole lists of tensors (torch's foreach functions) and nothing is read back to the host, so a step
on CUDA does not wait for the device. Gradients are never written to: whoever logs their norm later sees what they were.
Groups with `adapt` False hold biases and norms, which have no trust ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.train.optim.build import Groups
from paceline.train.optim.table import Settings


class _GroupByGroup(torch.optim.Optimizer):
    """An optimizer whose step is `step_group` of each group that has gradients.

    Attributes:
        uses: names of the settings that it takes besides the rate.
    """

    uses: tuple[str, ...]

    def __init__(self, groups: Groups, settings: Settings) -> None:
        taken = {name: getattr(settings, name) for name in ("lr", *self.uses)}
        super().__init__(groups, {**taken, "weight_decay": 0.0, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        loss = closure_loss(closure)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self.step_group(group, params, [p.grad for p in params])
        return loss

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """Update `params`; `grads` are theirs and are not written to."""
        raise NotImplementedError


class Lars(_GroupByGroup):
    """LARS: layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, arXiv 1708.03888).

        ratio = trust |w| / (|g| + decay |w|)             for matrices and filters; 1 for biases and norms
        buffer = momentum buffer + ratio (g + decay w)
        w = w - lr buffer

    The rate stands outside the buffer, as in torch's SGD: at a constant rate that is the paper's update, and when the
    rate changes (every step, during a warm-up) the buffer does not go on with the old one.

    Biases and the parameters of norms get plain momentum at the same rate, as is usual.
    """

    uses = ("momentum", "nesterov", "trust")

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """See the class."""
        decay, momentum = group["weight_decay"], group["momentum"]
        updates = list(torch._foreach_add(grads, params, alpha=decay)) if decay else grads
        if group["adapt"]:
            weights = torch._foreach_norm(params)
            bottoms = torch._foreach_add(torch._foreach_norm(grads), weights, alpha=decay)
            ratios = trust_ratios(torch._foreach_mul(weights, group["trust"]), bottoms)
            updates = list(torch._foreach_mul(updates, ratios))
        if momentum:
            fresh = [p for p in params if "momentum_buffer" not in self.state[p]]
            for p in fresh:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            buffers = [self.state[p]["momentum_buffer"] for p in params]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, updates)
            updates = list(torch._foreach_add(updates, buffers, alpha=momentum)) if group["nesterov"] else buffers
        torch._foreach_add_(params, updates, alpha=-group["lr"])


class Lamb(_GroupByGroup):
    """LAMB: layer-wise adaptive moments (You et al. 2020, arXiv 1904.00962, algorithm 2, with bias correction).

        m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2      and both divided by 1 - beta^t
        u = m / (sqrt(v) + eps) + decay w
        w = w - lr |w| / |u| u                            for matrices and filters; w - lr u for biases and norms

    No clipping of the global norm is hidden in it, as some libraries have it: `--clip-norm` does that.
    """

    uses = ("betas", "eps")

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """See the class."""
        updates = self._directions(group, params, grads)
        if group["adapt"]:
            torch._foreach_mul_(updates, trust_ratios(torch._foreach_norm(params), torch._foreach_norm(updates)))
        torch._foreach_add_(params, updates, alpha=-group["lr"])

    def _directions(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        beta1, beta2 = group["betas"]
        for p in params:
            if not self.state[p]:
                self.state[p] = {
                    "step": torch.zeros((), dtype=torch.float32),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }
        firsts = [self.state[p]["exp_avg"] for p in params]
        seconds = [self.state[p]["exp_avg_sq"] for p in params]
        torch._foreach_lerp_(firsts, grads, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, grads, grads, 1 - beta2)
        steps = [self.state[p]["step"] for p in params]
        torch._foreach_add_(steps, 1)
        counts = [float(step) for step in steps]  # these live on the host
        roots = torch._foreach_sqrt(torch._foreach_div(seconds, [1 - beta2**t for t in counts]))
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(torch._foreach_div(firsts, [1 - beta1**t for t in counts]), roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        return list(updates)


class NovoGrad(_GroupByGroup):
    """NovoGrad: Adam with one second moment a layer (Ginsburg et al. 2019, arXiv 1905.11286, algorithm 1).

        v = beta2 v + (1 - beta2) |g|^2,   v = |g|^2 at first
        m = beta1 m + g / (sqrt(v) + eps) + decay w
        w = w - lr m

    |g| is the norm over a whole tensor, so every tensor, biases and norms included, is divided by the size of its own
    gradient; there is no ratio to the size of weights. m is a sum, not a mean: with beta1 = 0.95 a steady direction is
    followed 20 times as fast as a new one.
    """

    uses = ("betas", "eps")

    def step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """See the class."""
        beta1, beta2 = group["betas"]
        squares = list(torch._foreach_pow(torch._foreach_norm(grads), 2))
        for p, square in zip(params, squares, strict=True):
            if not self.state[p]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": square.clone()}
        seconds = [self.state[p]["exp_avg_sq"] for p in params]
        firsts = [self.state[p]["exp_avg"] for p in params]
        torch._foreach_lerp_(seconds, squares, 1 - beta2)  # at first it stands on |g|^2, which this leaves there
        roots = torch._foreach_sqrt(seconds)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_mul_(firsts, beta1)
        torch._foreach_add_(firsts, torch._foreach_div(grads, roots))
        if group["weight_decay"]:
            torch._foreach_add_(firsts, params, alpha=group["weight_decay"])
        torch._foreach_add_(params, firsts, alpha=-group["lr"])


def trust_ratios(tops: Sequence[Tensor], bottoms: Sequence[Tensor]) -> list[Tensor]:
    """top / bottom of each pair of norms (), and 1 where either is zero: a layer at zero must be able to leave it."""
    return [torch.where((top > 0) & (bottom > 0), top / bottom, 1.0) for top, bottom in zip(tops, bottoms, strict=True)]


def closure_loss(closure: Any) -> Any:
    """What torch's interface wants of `step(closure)`."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that is applied to singular values (Jordan et al. 2024): steepest at 0, and near 1 it stays near 1."""
ITERATIONS = 5
TINY = 1e-7


def orthogonalised(matrix: Tensor) -> Tensor:
    """The matrix with all singular values moved near 1, by Newton and Schulz's iteration.

    Args:
        matrix: (rows, columns). Singular values down to about 0.01 of its norm come out between 0.68 and 1.14.
    """
    a, b, c = COEFFICIENTS
    values = matrix if matrix.dtype == torch.float64 else matrix.bfloat16()
    tall = matrix.size(0) > matrix.size(1)
    if tall:
        values = values.T
    values = values / values.norm().clamp(min=TINY)
    for _ in range(ITERATIONS):
        gram = values @ values.T
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        values = torch.addmm(values, polynomial, values, beta=a)
    return values.T if tall else values


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for matrices and filters, AdamW for the rest, as one optimizer (Jordan et al. 2024).

        buffer = momentum buffer + (1 - momentum) g
        O = orthogonalised((1 - momentum) g + momentum buffer)
        w = (1 - lr decay) w - lr 0.2 sqrt(max(rows, columns)) O

    Filters (out, in, height, width) are matrices of `out` rows here. So are embeddings and the last layer: nothing in a
    model says reliably which they are. AdamW has biases and norms, with the betas and eps of `Settings`. The factor
    before O makes the root mean square of a step that of AdamW's (Liu et al. 2025, arXiv 2502.16982), so one rate
    serves both.

    torch has Muon, too (`torch.optim.Muon`), and in float32 this is its update bit for bit (tested). It takes matrices
    only, though, and always orthogonalises in bfloat16, where the last bit of a sum over ranks decides about a rounding
    of 1/256: N ranks would not be one. In float64 this one stays in float64.

    Groups with `adapt` hold what Muon steps; AdamW has the others.
    """

    def __init__(self, groups: Groups, settings: Settings) -> None:
        likewise = [p for group in groups for p in group["params"]]
        inner = torch.optim.AdamW(likewise, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True)
        defaults = {**inner.defaults, "momentum": settings.momentum, "adapt": True, "weight_decay": 0.0}
        super().__init__(groups, defaults)
        self._adamw = inner

    def __getstate__(self) -> dict[str, Any]:
        # torch names what a copy of an optimizer takes along; without this, AdamW would be left behind.
        return {**super().__getstate__(), "_adamw": self._adamw}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        loss = closure_loss(closure)
        for group in self.param_groups:
            if group["adapt"]:
                for p in group["params"]:
                    if p.grad is not None:
                        self._step(group, p)
        # AdamW works on our groups and our state, so that both parts are saved and loaded as one.
        self._adamw.param_groups = [group for group in self.param_groups if not group["adapt"]]
        self._adamw.state = self.state
        self._adamw.step()
        return loss

    def _step(self, group: dict[str, Any], p: Tensor) -> None:
        assert p.grad is not None
        lr, momentum = group["lr"], group["momentum"]
        if not self.state[p]:
            self.state[p] = {"momentum_buffer": torch.zeros_like(p)}
        buffer = self.state[p]["momentum_buffer"]
        buffer.lerp_(p.grad, 1 - momentum)
        ahead = p.grad.lerp(buffer, momentum).flatten(1)
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(orthogonalised(ahead).reshape(p.shape), alpha=-lr * 0.2 * math.sqrt(max(ahead.shape)))
