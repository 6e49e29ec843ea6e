"""`--monitor sharpness`: the largest eigenvalue of the Hessian, beside what the step size bears, at each evaluation.

It is that of the loss on a fixed part of the training set, unaugmented, the model in eval mode, batch norms normalising
by the chunk's statistics (`curvature.fixed_loss`). Nothing of the training changes: measuring leaves no trace.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from paceline.curvature.eigen import Wanted
from paceline.curvature.fixed_loss import FixedLoss
from paceline.curvature.lanczos import eigenpairs
from paceline.curvature.operator import Space
from paceline.records.schema import Measure
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Task
from paceline.train.optim.table import Settings
from paceline.train.stability import stability_limit

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
    """

    def __init__(self, task: Task, model: nn.Module, like: Like, *, samples: int, settings: Settings) -> None:
        data: Any = task.train_data
        self.loss = FixedLoss(task, model, data, like, samples=min(samples, len(data)))
        self.settings = settings

    def measure(self, lr: float) -> tuple[dict[str, Measure], str]:
        """Sharpness and limit at the present weights and rate, and a note when the former did not converge."""
        point = self.loss.point()
        wanted = Wanted(largest=1, tol=TOLERANCE, max_steps=MOST_PRODUCTS)
        found = eigenpairs(lambda vector: self.loss.hvp(point, vector), Space.of(point), wanted)
        (pair,) = found.largest
        limit = stability_limit(lr, self.settings.momentum, nesterov=self.settings.nesterov)
        count = float(self.loss.samples)
        measured = {SHARPNESS: Measure(value=pair.value, count=count), LIMIT: Measure(value=limit, count=count)}
        note = "" if pair.converged else f"sharpness {pair.value:.4g} has not converged: residual {pair.residual:.2g}"
        return measured, note
