"""From a task's model to the one that is trained: its precision, its norms, its device, and whether it can take the
smallest batches of a run."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.parallel import agree
from paceline.parallel.partition import split
from paceline.parallel.placement import cpu_info
from paceline.parallel.rank_context import RankContext
from paceline.records.errors import PacelineError
from paceline.tasks.contract import model_problem
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Task
from paceline.train.batch_plan import Plan, lonely_batch
from paceline.train.ddp_warmup import leaving_no_trace
from paceline.train.feed import Feed
from paceline.train.norms.convert import synchronises, with_batch_norm
from paceline.train.norms.sync import SINGLE_SAMPLE
from paceline.train.objective import Objective
from paceline.train.resolve import TrainingPlan


@dataclass(frozen=True)
class Precision:
    """What `--precision` came to.

    Attributes:
        name: fp32, bf16 or fp64.
        parameters: dtype of weights, gradients, optimizer state and inputs.
        autocast: makes the context for forwards; bf16 computes matrix products and convolutions in bfloat16, and
            keeps weights, sums and losses in float32.
        reason: for the record.
    """

    name: str
    parameters: torch.dtype
    autocast: Callable[[], AbstractContextManager[Any]]
    reason: str


def convolutional(model: nn.Module) -> bool:
    """Whether the model convolves images."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def fast_bf16(device: torch.device) -> tuple[bool, str]:
    """Whether bfloat16 is computed by the hardware, and what says so."""
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        return capability >= (8, 0), f"CUDA capability {capability[0]}.{capability[1]}"
    flags = _cpu_flags()
    for flag in ("amx_bf16", "avx512_bf16"):
        if flag in flags:
            return True, f"the CPU has {flag}"
    return False, "the CPU has no bfloat16 instructions"


@functools.cache
def _cpu_flags() -> frozenset[str]:
    for line in cpu_info():
        if line.startswith(("flags", "Features")):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()  # not Linux: nothing is known, so nothing is assumed


def choose(asked: str, model: nn.Module, device: torch.device) -> Precision:
    """Turn `auto` into a precision and say why.

    bf16 pays where convolutions dominate and the hardware has it (measured: bench/records); small dense models
    such as those of `linear` and `digits` stay in fp32.
    """
    if asked == "auto":
        fast, why = fast_bf16(device)
        if convolutional(model) and fast:
            return _make("bf16", device, f"auto: convolutions, and {why}")
        return _make("fp32", device, f"auto: {why if convolutional(model) else 'no convolutions'}")
    if asked == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise PacelineError("--precision bf16 is not supported by this CUDA device", hint="--precision fp32")
    return _make(asked, device, "asked for")


def _make(name: str, device: torch.device, reason: str) -> Precision:
    if name == "bf16":
        autocast = functools.partial(torch.autocast, device.type, dtype=torch.bfloat16)
        return Precision(name, torch.float32, autocast, reason)
    return Precision(name, {"fp32": torch.float32, "fp64": torch.float64}[name], nullcontext, reason)


_TORCHS_SINGLE_SAMPLE = "Expected more than 1 value per channel"
"""What torch's own norms say of a single sample, as a ValueError."""


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def make_model(task: Task, planned: TrainingPlan, context: RankContext) -> tuple[nn.Module, Precision, Like]:
    """The model on this rank's device, in the precision that suits it; that precision, and what batches are like."""
    config = planned.config
    # The same seed everywhere, so that all ranks build the same model; from then on each draws its own numbers.
    seed_everything(config.seed)
    model = agree.all_or_none(lambda: build_model(task, planned, context.device))
    model, precision, like = placed(model, config.precision, context.device)
    seed_everything(int(np.random.SeedSequence((config.seed, 2, context.env.rank)).generate_state(1)[0]))
    return model, precision, like


def placed(model: nn.Module, precision: str, device: torch.device) -> tuple[nn.Module, Precision, Like]:
    """The model on a device, in the precision that was asked for; that precision, and what its batches are like."""
    chosen = choose(precision, model, device)
    model = converted(model, device, chosen.parameters)
    like = Like(device, chosen.parameters, convolutional(model))
    if like.channels_last:
        # Before DDP wraps it: gradients then have the strides of their buckets' views.
        model = model.to(memory_format=torch.channels_last)
    return model, chosen, like


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
    if (problem := model_problem(model)) is not None:
        raise PacelineError(f"the model of task {task.name} {problem.what}", hint=problem.hint)
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


def idles(plan: Plan, steps: int) -> bool:
    """Whether some rank has no sample in some micro-batch of a run of `steps` steps."""
    return any(len(split(length, parts, parts - 1)) < plan.world for length, parts in plan.lengths(steps))


def give_empty_batch(objective: Objective, plan: Plan, steps: int, feed: Feed) -> None:
    """Set `objective.empty` where a run needs one, after trying it; every rank calls this together.

    It is a batch of no samples, for a rank that has none while others have some: with synchronized batch norms a
    forward is a message in which every rank takes part. Which of a batch's dimensions hold samples is the collate
    function's own affair (time first, graphs joined along their nodes), so it is found by comparing a batch of 2
    samples with one of 3.

    Raises:
        PacelineError: on every rank: the batch has a form of which no empty one is known, or the loss cannot take it.
    """
    if not synchronises(objective.model) or not idles(plan, steps):
        return
    sizes = (2, 3) if plan.samples > 2 else (1, min(2, plan.samples))
    small, large = feed.sample(sizes[0]), feed.sample(sizes[1])

    was_training = objective.model.training

    def attempt() -> Any:
        try:
            empty = without_samples(small, large, sizes)
            objective.model.eval()  # no message between ranks: one that fails must not leave others waiting
            with leaving_no_trace(objective), torch.no_grad(), objective.autocast():
                loss = objective.loss(objective.model, empty)
            if float(loss.count):
                raise ValueError(f"its loss counts {float(loss.count):g}")
        except (ValueError, IndexError, TypeError, RuntimeError) as error:
            raise PacelineError(
                "a worker without samples cannot take part in synchronized batch norm",
                why=f"no batch of 0 samples can be made of this form, or the loss does not take it: {error}",
                hint=f"fewer workers, or a --global-batch that leaves each of {plan.world} a sample in every batch, "
                "also in the last one of an epoch; or --batch-norm local",
            ) from error
        finally:
            objective.model.train(was_training)
        return empty

    objective.empty = agree.all_or_none(attempt)


def without_samples(small: Any, large: Any, sizes: tuple[int, int]) -> Any:
    """A batch like these two, with 0 samples.

    Args:
        small, large: two batches of the same data.
        sizes: how many samples they have.

    Raises:
        ValueError: what is in them is nothing of which an empty one is known.
    """
    if isinstance(small, Tensor):
        return _narrowed(small, large, sizes)
    if small is None or isinstance(small, str | bytes | int | float):
        return small
    if isinstance(small, list | tuple) and (len(small), len(large)) == sizes and type(small) in (list, tuple):
        return type(small)()
    if isinstance(small, list | tuple) and type(small).__module__ != "torch.nn.utils.rnn" and len(small) == len(large):
        parts = [without_samples(one, other, sizes) for one, other in zip(small, large, strict=True)]
        return type(small)(*parts) if hasattr(small, "_fields") else type(small)(parts)
    if isinstance(small, dict) and isinstance(large, Mapping):
        return {name: without_samples(each, large[name], sizes) for name, each in small.items()}
    raise ValueError(f"it holds a {type(small).__name__}")


def _narrowed(small: Tensor, large: Tensor, sizes: tuple[int, int]) -> Tensor:
    pairs = list(zip(small.shape, large.shape, strict=True))
    along = [axis for axis, pair in enumerate(pairs) if pair == sizes]
    for axis in along or [axis for axis, (one, other) in enumerate(pairs) if one != other]:
        small = small.narrow(axis, 0, 0)
    return small
