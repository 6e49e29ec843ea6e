"""Formulae of optimizers in NumPy, right ones and known mistakes, for the checks of lab 8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Update = Callable[[list[np.ndarray], list[np.ndarray], list[Any], int], None]

FACTORS = (1.0, 1.0, 0.5, 0.25, 2.0)
"""Of the rate, step by step: what holds the rate shows only where it changes. It is the same in the first two steps,
so that what goes wrong in the second one is not due to it."""


def _rate(lr: float, step: int, mistake: str) -> float:
    return lr if mistake == "fixed-rate" else lr * FACTORS[step]


def momentum_update(lr: float, mu: float, decay: float, *, mistake: str = "") -> Update:
    """SGD with momentum, from its formula; `mistake` names what is done wrongly."""

    def update(weights: list[np.ndarray], grads: list[np.ndarray], state: list[Any], step: int) -> None:
        rate = _rate(lr, step, mistake)
        inside = rate if mistake == "rate-inside" else 1 - mu if mistake == "averaged" else 1.0
        for index, (w, g) in enumerate(zip(weights, grads, strict=True)):
            before = 0.0 if mistake == "forgotten" or not step else state[index]
            state[index] = mu * before + inside * (g if mistake == "no-decay" else g + decay * w)
            weights[index] = w - (1.0 if mistake == "rate-inside" else rate) * state[index]

    return update


def lars_update(lr: float, mu: float, decay: float, coefficient: float, *, mistake: str = "") -> Update:
    """LARS, from its formula; `mistake` names what is done wrongly."""

    def update(weights: list[np.ndarray], grads: list[np.ndarray], state: list[Any], step: int) -> None:
        rate = _rate(lr, step, mistake)
        for index, (w, g) in enumerate(zip(weights, grads, strict=True)):
            ratio, own = 1.0, 0.0
            if w.ndim > 1 or mistake == "biases":
                own = decay
                w_norm, g_norm = float(np.linalg.norm(w)), float(np.linalg.norm(g))
                if mistake == "trust":
                    w_norm, g_norm = g_norm, w_norm
                if w_norm > 0 and g_norm > 0:
                    together = float(np.linalg.norm(g + decay * w))
                    ratio = coefficient * w_norm / (together if mistake == "norm-of-sum" else g_norm + decay * w_norm)
            before = 0.0 if mistake == "forgotten" or not step else state[index]
            outside = {"rate-behind": rate, "both-behind": rate * ratio}.get(mistake, 1.0)
            state[index] = mu * before + rate * ratio / outside * (g + own * w)
            weights[index] = w - outside * state[index]

    return update


def novograd_update(lr: float, b1: float, b2: float, decay: float, *, mistake: str = "") -> Update:
    """NovoGrad, from its formula; `mistake` names what is done wrongly."""

    def update(weights: list[np.ndarray], grads: list[np.ndarray], state: list[Any], step: int) -> None:
        rate = _rate(lr, step, mistake)
        inside = rate if mistake == "rate-inside" else 1 - b1 if mistake == "averaged-sizes" else 1.0
        for index, (w, g) in enumerate(zip(weights, grads, strict=True)):
            square = g**2 if mistake == "element-wise" else np.sum(g**2)
            if mistake == "not-squared":
                square = np.sqrt(square)
            v, before = state[index] if step else (None, np.zeros_like(w))
            if mistake == "forgotten":
                before = np.zeros_like(w)
            first = (1 - b2) * square if mistake == "first-step" else square
            v = first if v is None else b2 * v + (1 - b2) * square
            size = np.sqrt(v) + 1e-8
            if mistake == "order":
                w = w - rate * before  # moved before m is, which then sees the moved weights
            added = (g + decay * w) / size if mistake == "decay-inside" else g / size + decay * w
            m = b1 * before + inside * added
            state[index] = (v, m)
            weights[index] = w - {"rate-inside": 1.0, "order": 0.0}.get(mistake, rate) * m

    return update
