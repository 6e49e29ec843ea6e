"""`--monitor sharpness`: the largest eigenvalue of the Hessian, beside what the step size bears, at each evaluation.

It is that of the loss on a fixed part of the training set, unaugmented, the model in eval mode, batch norms normalising
by the chunk's statistics (`curvature.fixed_loss`). Nothing of the training changes: measuring leaves no trace.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from paceline.curvature.batch_norm import measuring
from paceline.curvature.chunks import Chunks
from paceline.curvature.eigen import Wanted
from paceline.curvature.fixed_loss import FixedLoss
from paceline.curvature.lanczos import eigenpairs
from paceline.curvature.operator import Space
from paceline.curvature.twice import product, refuse_once_differentiable
from paceline.curvature.untouched import untouched
from paceline.records.errors import PacelineError
from paceline.records.schema import Measure
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Task
from paceline.train.optim.table import Settings

TOLERANCE, MOST_PRODUCTS = 1e-2, 60
SHARPNESS, LIMIT = "sharpness", "stability_limit"
_TRIED = 250
"""Samples, at most, on which it is tried whether a loss has a second derivative."""


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
        _require_second_derivative(task, model, like, min(samples, len(data), _TRIED))

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


def _require_second_derivative(task: Task, model: nn.Module, like: Like, samples: int) -> None:
    """Try one product on this rank alone, so that a training is not lost at its first evaluation."""
    batch = Chunks(task.train_data, like, samples, samples).batch(0)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with (
        untouched(model, like.device),
        measuring(model, "batch", twice=True),
        torch.autocast(like.device.type, enabled=False),
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
    ):
        try:
            total = task.loss(model, batch).sum.reshape(())
            refuse_once_differentiable(total, task.name)
            product(total, parameters, [torch.ones_like(parameter) for parameter in parameters], task.name)
        except PacelineError as error:
            raise PacelineError(
                "--monitor sharpness needs a loss that can be differentiated twice",
                why=f"{error.what}: {error.why}",
                hint="leave --monitor out, or take out the operation without a second derivative",
            ) from error


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
