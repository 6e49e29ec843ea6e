"""Facts about data sets and samplers, read without calling what a user wrote unless it cannot be helped."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch.utils.data import Subset

from paceline.observe.tensor_digest import hash_bytes, sampled_digest

_SAMPLER_FACTS = ("num_replicas", "rank", "shuffle", "seed", "epoch", "drop_last", "num_samples", "total_size")
_WRAPPER_NAMES = ("dataset", "subset", "base", "data")
"""Attributes under which data sets that transform another one keep it."""
_ENDS = 500


class RootIndices:
    """Translates indices of a data set into those of the root below Subsets and wrappers of the same length.

    Attributes:
        root: the data set that no other one lies below.
        digest: of the root indices of a Subset in order; None without a Subset.
    """

    def __init__(self, dataset: Any) -> None:
        self._chain: list[list[int]] = []
        self.root = dataset
        for _ in range(10):
            if isinstance(self.root, Subset):
                self._chain.append([int(each) for each in self.root.indices])
                self.root = self.root.dataset
            elif (inner := _wrapped_dataset(self.root)) is not None:
                self.root = inner
            else:
                break
        self.digest = None
        if self._chain:
            self.digest = hash_bytes(self.of(range(len(self._chain[0]))).tobytes())

    def of(self, index: Any) -> array[int]:
        """Root indices of one index or of a batch of them."""
        if isinstance(index, list) and not self._chain:
            with contextlib.suppress(TypeError):  # tensors or numbers of numpy are converted one by one
                return array("q", index)
        batch = index if isinstance(index, Iterable) and not isinstance(index, str | tuple) else [index]
        found = [_number(each) for each in batch]
        for indices in self._chain:
            found = [indices[each] for each in found]
        return array("q", found)


def _number(key: Any) -> int:
    """The index in a key: of a tuple, as (epoch, index), the last number.

    Raises:
        TypeError, ValueError: the key names its sample in another way.
    """
    return int(key[-1] if isinstance(key, tuple) and key else key)


def _wrapped_dataset(dataset: Any) -> Any:
    """The data set inside one that only transforms its samples: of the same length, in an attribute of its own."""
    try:
        attributes = vars(dataset)
    except TypeError:
        return None
    for name in _WRAPPER_NAMES:
        inner = attributes.get(name)
        if hasattr(inner, "__getitem__") and isinstance(inner, torch.utils.data.Dataset):
            return inner if length(inner) == length(dataset) else None
    return None


def length(dataset: Any) -> int | None:
    """`len(dataset)`; None where it has none."""
    try:
        return len(dataset)
    except Exception:  # noqa: BLE001  a user's method may raise anything
        return None


def sampler_of(loader: Any) -> Any:
    """The sampler that chooses the samples, inside the user's own batch sampler as well."""
    batches = getattr(loader, "batch_sampler", None)
    inner = getattr(batches, "sampler", None)
    if inner is not None:
        return inner
    return batches if batches is not None else getattr(loader, "sampler", None)


def sampler_facts(sampler: Any) -> dict[str, Any]:
    """Plain attributes of a sampler that say how it shards and shuffles."""
    try:
        attributes = vars(sampler)
    except TypeError:
        return {}
    found = {name: attributes[name] for name in _SAMPLER_FACTS if name in attributes}
    return {name: value for name, value in found.items() if isinstance(value, bool | int)}


@dataclass(frozen=True)
class Content:
    """Digests of what a data set holds; None where there is nothing of the kind.

    Attributes:
        ordered: of its lists, arrays and tensors, of their ends where they are long.
        unordered: of its short lists, independent of the order of their elements.
        attributes: of its numbers, texts and paths.
    """

    ordered: str | None = None
    unordered: str | None = None
    attributes: str | None = None


def content_of(dataset: Any) -> Content:
    """Digests of what a data set holds, without asking it for a sample."""
    try:
        attributes: dict[str, Any] = {"": dataset} if isinstance(dataset, list | tuple) else vars(dataset)
    except TypeError:
        return Content()
    named = sorted((name, value) for name, value in attributes.items() if isinstance(name, str))
    return Content(
        ordered=_hash([f"{name}={text}" for name, value in named if (text := _value_digest(value))]),
        unordered=_hash(
            [
                f"{name}={sorted(_value_digest(each, 1) for each in value)}"
                for name, value in named
                if isinstance(value, list | tuple)
                and len(value) <= 2 * _ENDS
                and any(_value_digest(each, 1) for each in value)
            ]
        ),
        attributes=_hash(
            [f"{name}={value}" for name, value in named if isinstance(value, str | int | float | PurePath)]
        ),
    )


def _hash(parts: list[str]) -> str | None:
    return hash_bytes("\n".join(parts).encode()) if parts else None


def _value_digest(value: Any, depth: int = 0) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)}{sampled_digest(value)}"
    if type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufSU" and value.ndim:
        chosen = value.reshape(-1)[:: max(1, value.size // 4096)]
        return f"{value.shape}{hash_bytes(chosen.copy().tobytes())}"
    if isinstance(value, list | tuple) and depth < 3:
        ends = value if len(value) <= 2 * _ENDS else [*value[:_ENDS], *value[-_ENDS:]]
        return f"{len(value)}[{','.join(_value_digest(each, depth + 1) for each in ends)}]"
    if isinstance(value, str | int | float) and depth:
        return repr(value)
    return ""
