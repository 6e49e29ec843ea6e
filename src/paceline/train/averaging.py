"""Averages of the weights along the way: what is evaluated and kept when `--average` is asked for.

Large batches take few and long steps, so the last weights carry much of the last gradients' noise; an average has less.
The average itself is torch's (`torch.optim.swa_utils`). Weights are equal on all ranks, so averages are, too.

    ema   every step; running statistics are averaged in the same way
    swa   at the end of each epoch after `swa_from` of the run; no weights ever had its batch-norm statistics, so they
          are taken anew from training data before it is evaluated or saved (Izmailov et al. 2018, section 3.2)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paceline.checkpoint.state import capture_random, restore_random
from paceline.parallel.buffers import is_statistic
from paceline.records.schema import Measure
from paceline.tasks.task import Task
from paceline.train.batch_plan import Plan
from paceline.train.evaluate import evaluate
from paceline.train.feed import Feed
from paceline.train.objective import Objective

REFRESH_SAMPLES = 10_000
"""Training samples, over all ranks, from which batch-norm statistics of an average are taken."""


class Average:
    """An average of a model's weights.

    Args:
        objective: what is trained; the average has its loss and its precision.
        feed: of the training set.
        plan: how the data are cut.
        decay: of `ema`; None for `swa`.
        first_step: the average begins with the weights after this step, 1 or more.
        last_step: of the run; its weights belong to the average, whether or not an epoch ends there.
    """

    def __init__(
        self, objective: Objective, feed: Feed, plan: Plan, *, decay: float | None, first_step: int, last_step: int
    ) -> None:
        self.feed = feed
        self.plan = plan
        self.decay = decay
        self.first_step = first_step
        self.last_step = last_step
        average = None if decay is None else get_ema_multi_avg_fn(decay)
        self.averaged = AveragedModel(objective.model, multi_avg_fn=average, use_buffers=decay is not None)
        self.objective = Objective(self.averaged.module, objective.loss, objective.autocast)
        self.objective.empty = objective.empty
        self.averaged.requires_grad_(False)
        self._stale = False

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
            self._stale = self.decay is None
            if self.decay is not None:
                self._take_over(model)

    def _take_over(self, model: nn.Module) -> None:
        """Buffers that have no average: whole numbers (an index would be rounded), and what is not finite (a mask)."""
        for averaged, own in zip(self.model.buffers(), model.buffers(), strict=True):
            if is_statistic(own):
                averaged.copy_(torch.where(torch.isfinite(averaged), averaged, own))
            else:
                averaged.copy_(own)

    def evaluate(self, task: Task, eval_feed: Feed) -> dict[str, Measure]:
        """As `evaluate` does it, of the average."""
        self.refresh()
        return evaluate(self.objective, task, eval_feed)

    def refresh(self) -> None:
        """Take batch-norm statistics anew if weights came in since that was last done; all ranks call this together."""
        if not self._stale:
            return
        random_state = capture_random()
        self._take_statistics()
        restore_random(random_state)
        self._stale = False

    @torch.no_grad()
    def _take_statistics(self) -> None:
        """As the mean over batches of the first epoch; each rank's are of its own samples, until they are merged."""
        norms = [module for module in self.model.modules() if isinstance(module, _BatchNorm)]
        if not any(norm.track_running_stats for norm in norms):
            return
        with _taking_statistics(self.model, norms):
            for number, micro_batches in enumerate(self.feed.epoch(0, 0)):
                for batch in micro_batches:
                    batch = self.objective.empty if batch is None else batch
                    if batch is not None:
                        self.objective.compute(batch)
                if (number + 1) * self.plan.global_batch >= REFRESH_SAMPLES:
                    break

    def state(self, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is needed to go on, on any number of ranks.

        Args:
            model: the averaged model's state dict, its statistics merged over ranks.
        """
        merged = {f"module.{name}": value for name, value in model.items()}
        return {name: merged.get(name, value).detach().cpu() for name, value in self.averaged.state_dict().items()}

    def restore(self, saved: Mapping[str, Tensor], first_step: int | None, step: int, model: nn.Module) -> list[str]:
        """Go on from `state`.

        In a run that was made longer `swa` begins later. What was averaged before that is dropped, as long as nothing
        that belongs to the average would go with it.

        Args:
            saved: what `state` gave.
            first_step: that the saved one began after; None in checkpoints of versions that saved other statistics.
            step: at which it was saved.
            model: the trained one, as it was then.

        Returns:
            notes for people.
        """
        begun = self.first_step if first_step is None else first_step
        earlier = self.decay is None and int(saved["n_averaged"]) > 0 and begun < self.first_step
        if earlier and step <= self.first_step:
            self.update(model, step)
            return [f"the run is longer now: its average begins anew, with the weights after step {self.first_step:,}"]
        self.averaged.load_state_dict(dict(saved))
        self._stale = self.decay is None and first_step is None
        if not earlier:
            return []
        return [
            f"the run is longer now: by --swa-from its average would begin after step {self.first_step:,}, "
            f"but it holds weights from step {begun:,} on"
        ]


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
