"""How sharp a minimum a step size bears: limits of stability of gradient descent on a quadratic. Never imports torch.

On h w^2 / 2 a method diverges when the curvature h is above

    gradient descent    2 / lr
    heavy ball          (2 + 2 m) / lr                   momentum as torch has it
    Nesterov            (2 + 2 m) / ((1 + 2 m) lr)

(Cohen et al. 2021, arXiv 2103.00065, section 2 and appendix B). With the whole training set as one batch the largest
eigenvalue of the Hessian rises until it hovers there: the edge of stability. With mini-batches it stays below.
"""

from __future__ import annotations

import math


def stability_limit(lr: float, momentum: float = 0.0, *, nesterov: bool = False) -> float:
    """The largest curvature at which steps of SGD do not grow; infinite at a rate of 0.

    Args:
        lr: 0 and more.
        momentum: 0 <= momentum < 1.
        nesterov: Nesterov's form.
    """
    if lr == 0:
        return math.inf
    limit = (2 + 2 * momentum) / lr
    return limit / (1 + 2 * momentum) if nesterov else limit
