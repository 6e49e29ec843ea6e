"""Symmetric operators as functions: what `lanczos`, `trace` and `density` are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paceline.records.errors import Exit, PacelineError

Operator = Callable[[Tensor], Tensor]
"""apply(v (n,)) -> H v (n,), for a symmetric H; never changes v."""
Objective = Callable[[Tensor], tuple[float, Tensor]]
"""f(x (n,)) -> f(x), its gradient (n,)."""


@dataclass(frozen=True)
class Space:
    """The space of the vectors that an operator takes.

    Attributes:
        size: n, 1 or more.
        dtype: floating.
        device: where.
    """

    size: int
    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def of(cls, vector: Tensor) -> Space:
        """The space that `vector` (n,) is in."""
        return cls(len(vector), vector.dtype, vector.device)


def weighted(apply: Operator, weights: Tensor) -> Operator:
    """D H D with D = diag(|weights|): curvature by relative changes of the weights.

    Plain curvature changes when a network is rewritten without a change of its function, for instance when one layer
    is multiplied by a and the next divided by it (Dinh et al. 2017, arXiv 1703.04933). The trace of this form,
    sum_i w_i^2 H_ii, stays as it is under such a rescaling of a minimum.

    Args:
        apply: H.
        weights: (n,) the point at which H was taken.
    """
    scale = weights.detach().abs()
    return lambda vector: scale * apply(scale * vector)


def applied(apply: Operator, vector: Tensor) -> Tensor:
    """H times a vector, refused when it is not a finite vector of the same shape.

    Raises:
        PacelineError: naming what it is.
    """
    product = apply(vector)
    if product.shape != vector.shape:
        raise PacelineError(
            f"the operator turned a vector of shape {tuple(vector.shape)} into one of shape {tuple(product.shape)}",
            exit_code=Exit.FAILED,
        )
    if not bool(torch.isfinite(product).all()):
        raise PacelineError(
            "the Hessian times a vector is not finite",
            why="the loss, or a derivative of it, is infinite or not a number at these weights",
            hint="look at the loss there first; weights from before the divergence can be measured",
            exit_code=Exit.DIVERGED,
        )
    return product
