"""What a dataset may bring besides its samples: `set_epoch(epoch)` and `collate(samples)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import default_collate

from paceline.records.errors import PacelineError

_TO_EPOCH = "set_epoch"
_TOLD: dict[int, tuple[Any, int]] = {}
"""By the id of a dataset: the dataset itself, so that no other gets this id, and the epoch that it was told last."""


def tell_epoch(data: Any, epoch: int) -> bool:
    """Call `set_epoch(epoch)` of a dataset, of the datasets that it wraps, and of its collate or prepare function.

    Nothing is called that was told the same epoch last. A dataset with a `set_epoch` of its own answers for what it
    wraps. Others are looked through: `.dataset` (as torch's Subset), `.datasets` (as ConcatDataset and StackDataset).

    Args:
        data: `Arrays` or a map-style dataset.
        epoch: 0 for the first.

    Returns:
        whether anything wanted to know.

    Raises:
        PacelineError: the dataset has another length in this epoch.
    """
    listeners = list(_listeners(data, set()))
    if not listeners:
        return False
    before = len(data)
    for listener in listeners:
        if _TOLD.get(id(listener), (None, None))[1] != epoch:
            listener.set_epoch(epoch)
            _TOLD[id(listener)] = (listener, epoch)
    if len(data) != before:
        raise PacelineError(
            f"{type(data).__name__} has {before:,} samples, and {len(data):,} after set_epoch({epoch})",
            why="steps, shares and the learning rate are planned on one length for all epochs",
            hint="keep the length fixed; __getitem__ may draw other samples in each epoch",
        )
    return True


def _listeners(data: Any, seen: set[int]) -> Iterator[Any]:
    if data is None or id(data) in seen:
        return
    seen.add(id(data))
    if callable(getattr(data, _TO_EPOCH, None)):
        yield data
    else:
        inner = getattr(data, "datasets", None)
        parts = inner.values() if isinstance(inner, Mapping) else inner if isinstance(inner, list | tuple) else ()
        for part in (getattr(data, "dataset", None), *parts):
            yield from _listeners(part, seen)
    for name in ("collate", "prepare"):
        function = getattr(data, name, None)
        if callable(getattr(function, _TO_EPOCH, None)) and id(function) not in seen:
            seen.add(id(function))
            yield function


def collate_of(data: Any) -> Any:
    """What makes a batch of a list of samples: the dataset's own method `collate`, else torch's `default_collate`."""
    return getattr(data, "collate", None) or default_collate
