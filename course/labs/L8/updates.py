"""Formulae of optimizers in NumPy, right ones and known mistakes, for the checks of lab 8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Update = Callable[[list[np.ndarray], list[np.ndarray], list[Any], int], None]


def momentum_update(lr: float, mu: float, decay: float, *, part: float = 1.0) -> Update:
    """SGD with momentum, from its formula."""

    def update(weights: list[np.ndarray], grads: list[np.ndarray], state: list[Any], step: int) -> None:
        for index, (w, g) in enumerate(zip(weights, grads, strict=True)):
            before = state[index] if step else 0.0
            state[index] = mu * before + part * (g + decay * w)
            weights[index] = w - lr * state[index]

    return update


def lars_update(lr: float, mu: float, decay: float, trust: float, *, mistake: str = "") -> Update:
    """LARS, from its formula; `mistake` names what is done wrongly."""

    def update(weights: list[np.ndarray], grads: list[np.ndarray], state: list[Any], step: int) -> None:
        for index, (w, g) in enumerate(zip(weights, grads, strict=True)):
            ratio, own = 1.0, 0.0
            if w.ndim > 1 or mistake == "biases":
                own = decay
                w_norm, g_norm = float(np.linalg.norm(w)), float(np.linalg.norm(g))
                if mistake == "trust":
                    w_norm, g_norm = g_norm, w_norm
                if w_norm > 0 and g_norm > 0:
                    ratio = trust * w_norm / (g_norm + decay * w_norm)
            before = state[index] if step else 0.0
            inside = 1.0 if mistake == "rate-behind" else lr
            state[index] = mu * before + inside * ratio * (g + own * w)
            weights[index] = w - state[index] * (lr * ratio if mistake == "rate-behind" else 1.0)

    return update


def novograd_update(lr: float, b1: float, b2: float, decay: float, *, mistake: str = "") -> Update:
    """NovoGrad, from its formula; `mistake` names what is done wrongly."""

    def update(weights: list[np.ndarray], grads: list[np.ndarray], state: list[Any], step: int) -> None:
        for index, (w, g) in enumerate(zip(weights, grads, strict=True)):
            square = g**2 if mistake == "element-wise" else np.sum(g**2)
            v, m = state[index] if step else (None, np.zeros_like(w))
            first = (1 - b2) * square if mistake == "first-step" else square
            v = first if v is None else b2 * v + (1 - b2) * square
            size = np.sqrt(v) + 1e-8
            added = (g + decay * w) / size if mistake == "decay-inside" else g / size + decay * w
            m = b1 * m + (1 - b1 if mistake == "averaged" else 1.0) * added
            state[index] = (v, m)
            weights[index] = w - lr * m

    return update
