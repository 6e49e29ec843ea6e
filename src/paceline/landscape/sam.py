"""SAM sharpness: how much the loss can rise within a small distance of the weights.

    max L(w + e) - L(w)    over |e| <= rho                   (Foret et al. 2021, arXiv 2010.01412)
    max L(w + e) - L(w)    over |e / |w|| <= rho             (adaptive: Kwon et al. 2021, arXiv 2102.11600)

The adaptive form measures steps in units of each weight, so that rescaling a layer and its counterpart leaves it as it
is. SAM itself takes one step along the gradient; that is the first start here, and it is then improved.

**The search.** Over a ball, a linear function is largest at rho * g / |g|. Going there again and again is steepest
ascent; at a minimum, where L is quadratic, it is power iteration, and ends at rho^2 * (largest eigenvalue) / 2. Where a
step does not raise the loss it is halved. Several starts; the largest value is a lower bound of the maximum.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.curvature.operator import Objective
from paceline.curvature.random_vectors import Stream, random_stream

STEPS = 20
"""Gradients of one start at most."""
_LEAST_STEP = 1 / 16
_SETTLED = 1e-9
"""A search ends at a step that changes the rise by less than this share of it, or by what rounding does to it."""
_ROUNDING = 1e3
"""The error of a loss over many samples, in units of the dtype's epsilon times the rise."""


def climb(
    objective: Objective,
    weights: Tensor,
    rho: float,
    *,
    adaptive: bool = False,
    seed: int = 0,
    start: int = 0,
    steps: int = STEPS,
) -> float:
    """The highest L that one search has seen within the ball; -inf where none was finite.

    Args:
        objective: L and its gradient.
        weights: (P,) w, in the middle.
        rho: radius, above 0.
        adaptive: measure steps in units of |w|.
        seed, start: start 0 goes along the gradient at w, unless that is zero; the others are random.
        steps: gradients at most, 2 or more.
    """
    scale = weights.abs() if adaptive else torch.ones_like(weights)
    begin = torch.zeros_like(weights) if start == 0 else _random(weights, rho, seed, start)
    value, gradient = objective(weights + scale * begin)
    if start == 0 and not bool((scale * gradient).any()):
        return climb(objective, weights, rho, adaptive=adaptive, seed=seed, start=1, steps=steps - 1)
    if not math.isfinite(value):
        return -math.inf
    settled = max(_SETTLED, _ROUNDING * torch.finfo(weights.dtype).eps)
    place, size, used, first = begin, 1.0, 1, value
    while used < steps and size >= _LEAST_STEP:
        target = scale * gradient
        length = float(target.double().norm())
        if length == 0 or not math.isfinite(length):
            break
        # Toward the best point of the ball by the present slope: a point between two of the ball lies in it.
        tried = place + size * (rho / length * target - place)
        found, slope = objective(weights + scale * tried)
        used += 1
        change = found - value
        if math.isfinite(found) and change > 0:
            value, gradient, place, size = found, slope, tried, min(1.0, 2 * size)
        else:
            size /= 2
        if abs(change) <= settled * (value - first):
            break
    return value


def _random(weights: Tensor, rho: float, seed: int, start: int) -> Tensor:
    """A point on the sphere."""
    drawn = torch.from_numpy(random_stream(Stream.BALL_START, seed, start).standard_normal(len(weights)))
    point: Tensor = (drawn * (rho / drawn.norm())).to(weights)
    return point
