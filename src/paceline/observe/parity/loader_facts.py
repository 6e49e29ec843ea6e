"""Facts of a training loader that two scripts have to agree on."""

from __future__ import annotations

from typing import Any

from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from paceline.observe.call_site import user_place
from paceline.observe.dataset_facts import sampler_of
from paceline.records.parity import TrainingLoader


def training_loader(loader: Any) -> TrainingLoader:
    """Facts of a DataLoader.

    Raises:
        TypeError: it has no length.
    """
    batches, sampler = len(loader), sampler_of(loader)
    try:
        samples = len(sampler)
    except TypeError:
        samples = None
    size = getattr(loader.batch_sampler, "batch_size", loader.batch_size)
    if samples is not None and isinstance(size, int):
        samples = min(samples, batches * size)  # drop_last
    return TrainingLoader(
        batches=batches,
        samples=samples,
        drops_last=bool(getattr(loader.batch_sampler, "drop_last", loader.drop_last)),
        shuffles=_shuffles(sampler),
        place=user_place(),
    )


def _shuffles(sampler: Any) -> bool | None:
    if isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
        return True
    if isinstance(sampler, SequentialSampler):
        return False
    shuffle = getattr(sampler, "shuffle", None)
    return shuffle if isinstance(shuffle, bool) else None
