"""Averages of the weights along the way: what is evaluated and kept when `--average` is asked for.

Large batches take few and long steps, so the last weights carry much of the last gradients' noise; an average has less.
The average itself is torch's (`torch.optim.swa_utils`). Weights are equal on all ranks, so averages are, too.

    ema   every step; running statistics of batch norms are averaged in the same way
    swa   at the end of each epoch after `swa_from` of the run; no weights ever had its batch-norm statistics, so they
          are taken anew from training data before it is evaluated (Izmailov et al. 2018, section 3.2)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paceline.records.schema import Measure
from paceline.tasks.task import Task
from paceline.train.evaluate import evaluate
from paceline.train.feed import Feed
from paceline.train.objective import Objective
from paceline.train.plan import Plan

REFRESH_SAMPLES = 10_000
"""Training samples, over all ranks, from which batch-norm statistics of an average are taken."""


class Average:
    """An average of a model's weights.

    Args:
        objective: what is trained; the average has its loss and its precision.
        plan: how the data are cut.
        decay: of `ema`; None for `swa`.
        first_step: the average begins with the weights after this step, 1 or more.
        last_step: of the run; its weights belong to the average, whether or not an epoch ends there.
    """

    def __init__(
        self, objective: Objective, plan: Plan, *, decay: float | None, first_step: int, last_step: int
    ) -> None:
        self.plan = plan
        self.decay = decay
        self.first_step = first_step
        self.last_step = last_step
        average = None if decay is None else get_ema_multi_avg_fn(decay)
        self.averaged = AveragedModel(objective.model, multi_avg_fn=average, use_buffers=decay is not None)
        self.objective = Objective(self.averaged.module, objective.loss, objective.autocast)
        self.objective.empty = objective.empty
        self.averaged.requires_grad_(False)

    @property
    def model(self) -> nn.Module:
        """The averaged model."""
        model: nn.Module = self.averaged.module
        return model

    @property
    def begun(self) -> bool:
        """Whether anything is in the average yet."""
        return int(self.averaged.n_averaged) > 0

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after `step` steps, when it is time."""
        ends = self.plan.locate(step)[1] == 0 or step == self.last_step
        if step >= self.first_step and (self.decay is not None or ends):
            self.averaged.update_parameters(model)

    def evaluate(self, task: Task, eval_feed: Feed, train_feed: Feed) -> dict[str, Measure]:
        """As `evaluate` does it, of the average."""
        if self.decay is None:
            self._refresh(train_feed)
        return evaluate(self.objective, task, eval_feed)

    @torch.no_grad()
    def _refresh(self, feed: Feed) -> None:
        """Take batch-norm statistics anew, as the mean over batches of the first epoch."""
        norms = [module for module in self.model.modules() if isinstance(module, _BatchNorm)]
        if not any(norm.track_running_stats for norm in norms):
            return
        with _taking_statistics(self.model, norms):
            for number, micro_batches in enumerate(feed.epoch(0, 0)):
                for batch in micro_batches:
                    batch = self.objective.empty if batch is None else batch
                    if batch is not None:
                        with self.objective.autocast():
                            self.objective.loss(self.model, batch)
                if (number + 1) * self.plan.global_batch >= REFRESH_SAMPLES:
                    break

    def state(self) -> dict[str, Tensor]:
        """What is needed to go on, without the buffers of other ranks."""
        return {name: value.detach().cpu() for name, value in self.averaged.state_dict().items()}

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Go on from `state`."""
        self.averaged.load_state_dict(saved)


@contextmanager
def _taking_statistics(model: nn.Module, norms: list[_BatchNorm]) -> Iterator[None]:
    """Batch norms gather cumulative statistics from nothing; dropout and the like stay off."""
    was_training = model.training
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
        norm.training = True
    try:
        yield
    finally:
        model.train(was_training)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
