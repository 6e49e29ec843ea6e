"""`--monitor sharpness`: the largest eigenvalue of the Hessian, beside what the step size bears, at each evaluation.

It is that of the loss on a fixed part of the training set, unaugmented, the model in eval mode, batch norms normalising
by the chunk's statistics (`curvature.fixed_loss`). Nothing of the training changes: measuring leaves no trace.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from paceline.curvature.fixed_loss import FixedLoss
from paceline.curvature.lanczos import Wanted, eigenpairs
from paceline.curvature.operator import Space
from paceline.records.errors import PacelineError
from paceline.records.schema import Measure
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Task
from paceline.train.optim.table import Settings

TOLERANCE, MOST_PRODUCTS = 1e-2, 60
SHARPNESS, LIMIT = "sharpness", "stability_limit"


class Monitor:
    """Measures a model that is being trained. All ranks call it together and get the same numbers.

    Args:
        task: gives the loss.
        model: in the state in which it is trained, not wrapped.
        like: of its batches.
        samples: the first so many of the training set; all when it has fewer.
        settings: of the optimizer, SGD.

    Raises:
        PacelineError: the loss cannot be differentiated twice.
    """

    def __init__(self, task: Task, model: nn.Module, like: Like, *, samples: int, settings: Settings) -> None:
        data: Any = task.train_data
        self.loss = FixedLoss(task, model, data, like, samples=min(samples, len(data)))
        self.settings = settings
        try:  # now, so that a training is not lost at its first evaluation
            self.loss.require_second_derivative()
        except PacelineError as error:
            raise PacelineError(
                "--monitor sharpness needs a loss that can be differentiated twice",
                why=": ".join(part for part in (error.what, error.why) if part),
                hint="leave --monitor out, or take out the operation without a second derivative",
            ) from error

    def measure(self, lr: float) -> tuple[dict[str, Measure], str]:
        """Sharpness and limit at the present weights and rate, and a note when the former did not converge.

        Where it cannot be measured, as at weights with an infinite curvature, there is the note alone.
        """
        point = self.loss.point()
        wanted = Wanted(largest=1, tol=TOLERANCE, max_steps=MOST_PRODUCTS)
        together = False

        def apply(vector: Tensor) -> Tensor:
            nonlocal together
            together = True
            found = self.loss.hvp(point, vector)
            together = False
            return found

        try:
            found = eigenpairs(apply, Space.of(point), wanted)
        except PacelineError as error:
            if together:  # perhaps on this rank alone, and others wait for its part of the product
                raise
            return {}, f"the sharpness was not measured: {error.what}"
        (pair,) = found.largest
        limit = stability_limit(lr, self.settings.momentum, nesterov=self.settings.nesterov)
        count = float(self.loss.samples)
        measured = {SHARPNESS: Measure(value=pair.value, count=count), LIMIT: Measure(value=limit, count=count)}
        note = "" if pair.converged else f"sharpness {pair.value:.4g} has not converged: residual {pair.residual:.2g}"
        return measured, note


def stability_limit(lr: float, momentum: float = 0.0, *, nesterov: bool = False) -> float:
    """How sharp a minimum a step size bears: the largest curvature at which steps of SGD do not grow.

    On h w^2 / 2 a method diverges when the curvature h is above

        gradient descent    2 / lr
        heavy ball          (2 + 2 m) / lr                   momentum as torch has it
        Nesterov            (2 + 2 m) / ((1 + 2 m) lr)

    (Cohen et al. 2021, arXiv 2103.00065, section 2 and appendix B). With the whole training set as one batch the
    largest eigenvalue of the Hessian rises until it hovers there: the edge of stability. With mini-batches it stays
    below.

    Args:
        lr: 0 and more; at 0 the limit is infinite.
        momentum: 0 <= momentum < 1.
        nesterov: Nesterov's form.
    """
    if lr == 0:
        return math.inf
    limit = (2 + 2 * momentum) / lr
    return limit / (1 + 2 * momentum) if nesterov else limit
