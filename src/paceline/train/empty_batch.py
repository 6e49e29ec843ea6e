"""A batch of no samples, for a rank that has none while others have some and the model's forward is a collective.

Synchronized batch norms make a forward a message in which every rank takes part. Which of a batch's dimensions hold
samples is the collate function's own affair (time first, graphs joined along their nodes), so it is found by comparing
a batch of 2 samples with one of 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from paceline.parallel import agree
from paceline.parallel.partition import split
from paceline.records.errors import PacelineError
from paceline.train.batch_plan import Plan
from paceline.train.feed import Feed
from paceline.train.norms.convert import synchronises
from paceline.train.objective import Objective
from paceline.train.settle import leaving_no_trace


def idles(plan: Plan, steps: int) -> bool:
    """Whether some rank has no sample in some micro-batch of a run of `steps` steps."""
    return any(len(split(length, parts, parts - 1)) < plan.world for length, parts in plan.lengths(steps))


def give_empty_batch(objective: Objective, plan: Plan, steps: int, feed: Feed) -> None:
    """Set `objective.empty` where a run needs one, after trying it; every rank calls this together.

    Args:
        objective: before DDP wraps it.
        plan: of this rank.
        steps: of the run.
        feed: of the training set.

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
