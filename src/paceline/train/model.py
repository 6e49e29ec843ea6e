"""From a task's model to the one that is trained: its norms, its precision, its device."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.parallel import agree
from paceline.parallel.rank_context import RankContext
from paceline.records.errors import PacelineError
from paceline.tasks.task import Task
from paceline.train.batch_plan import Plan, lonely_batch
from paceline.train.feed import Feed
from paceline.train.norms.convert import synchronises, with_batch_norm
from paceline.train.norms.sync import SINGLE_SAMPLE
from paceline.train.objective import Objective
from paceline.train.precision import Precision, choose, convolutional
from paceline.train.resolve import TrainingPlan
from paceline.train.settle import leaving_no_trace

_TORCHS_SINGLE_SAMPLE = "Expected more than 1 value per channel"
"""What torch's own norms say of a single sample, as a ValueError."""


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def make_model(task: Task, planned: TrainingPlan, context: RankContext) -> tuple[nn.Module, Precision]:
    """The model on this rank's device, in the precision that suits it, and that precision."""
    config = planned.config
    # The same seed everywhere, so that all ranks build the same model; from then on each draws its own numbers.
    seed_everything(config.seed)
    model = agree.all_or_none(lambda: build_model(task, planned, context.device))
    precision = choose(config.precision, model, context.device)
    model = converted(model, context.device, precision.parameters)
    if convolutional(model):
        # Before DDP wraps it: gradients then have the strides of their buckets' views.
        model = model.to(memory_format=torch.channels_last)
    seed_everything(int(np.random.SeedSequence((config.seed, 2, context.env.rank)).generate_state(1)[0]))
    return model, precision


def converted(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The model on a device, its real numbers in `dtype`, complex ones in pairs of that; Module.to makes them real."""

    def convert(value: Tensor) -> Tensor:
        if value.is_complex():
            return value.to(device, dtype.to_complex())
        return value.to(device, dtype) if value.is_floating_point() else value.to(device)

    model._apply(convert)
    return model


def build_model(task: Task, planned: TrainingPlan, device: torch.device) -> nn.Module:
    """The task's model with the batch norms that were asked for; not yet on `device`.

    Raises:
        PacelineError: it is no module, has nothing to train, or no batch norm to change.
    """
    config, rates = planned.config, planned.rates
    model = task.model()
    if not isinstance(model, nn.Module):
        raise PacelineError(
            f"the model of task {task.name} is a {type(model).__name__}, not a torch.nn.Module",
            hint="let model() build and return a fresh module",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise PacelineError(f"the model of task {task.name} has nothing to train", hint="give it parameters")
    if config.bn_momentum is not None and not _normalises(model):
        raise PacelineError("--bn-momentum has nothing to change: the model has no batch norm", hint="leave it out")

    def momentum(own: float) -> float:
        return rates.bn_momentum(own if config.bn_momentum is None else config.bn_momentum)

    return with_batch_norm(model, config.batch_norm, ghost_size=config.ghost_size, momentum=momentum, device=device)


def _normalises(model: nn.Module) -> bool:
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def refuse_single_samples(objective: Objective, plan: Plan, steps: int, feed: Feed) -> None:
    """Refuse batches of which somebody would have a single sample that a batch norm cannot normalise.

    Whether it can depends on the model (an image has many values a channel), so that is tried. Every rank calls this
    together.

    Args:
        objective: before DDP wraps it.
        plan: of this rank.
        steps: of the run.
        feed: of the training set.

    Raises:
        PacelineError: on every rank.
    """
    together = synchronises(objective.model)
    length = lonely_batch(plan, steps, together=together)
    if not length or not _normalises(objective.model):
        return
    batch = feed.sample(1) if plan.rank == 0 or not together else objective.empty
    why = f"{plan.samples:,} samples in batches of {plan.global_batch:,} leave one of {length:,}"
    hint = "another --global-batch"
    if not together:
        why += ", and a worker with a single sample of it"
        hint += ", number of workers or --accumulate, or --batch-norm sync"

    def attempt() -> None:
        try:
            with leaving_no_trace(objective), torch.no_grad():
                objective.compute(batch)
        except (ValueError, PacelineError) as error:
            if not any(words in str(error) for words in (SINGLE_SAMPLE, _TORCHS_SINGLE_SAMPLE)):
                raise
            raise PacelineError(SINGLE_SAMPLE, why=why, hint=hint) from error

    agree.all_or_none(attempt)
