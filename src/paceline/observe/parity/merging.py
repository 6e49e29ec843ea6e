"""Joins what ranks had into what one process has: batches in the order of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Place = tuple[Any, ...]
"""Keys and numbers that lead to a tensor within a batch."""


class CannotMergeError(ValueError):
    """Parts of ranks that make no batch."""


_ENOUGH = 3.0
"""A value that ends three rows and stands nowhere else, or ends one of them twice, fills up rows."""


class Fillers:
    """Values that fill up short rows, as batches show them, each for one place in the structure of a batch.

    Args:
        batches: gives the batches; called when a value is needed.

    Attributes:
        needed: rows were filled up.
        unknown: no batch shows with which value.
    """

    def __init__(self, batches: Callable[[], Iterable[Any]]) -> None:
        self._batches = batches
        self._seen: dict[Place, _Seen] = {}
        self.needed = self.unknown = False

    def value(self, place: Place) -> Any:
        """The one that ends rows and stands nowhere else, as far as there is one; 0 where no row shows it."""
        if not self.needed:
            self.needed = True
            for each in self._batches():
                self._learn(each, ())
        seen = self._seen.get(place, _Seen())
        scores = {value: runs / (1 + seen.within[value]) for value, runs in seen.ends.items()}
        best = max(scores, key=scores.__getitem__, default=None)
        if best is not None and scores[best] >= _ENOUGH:
            return best
        self.unknown |= len(seen.constant) != 1
        return next(iter(seen.constant), 0)

    def _learn(self, batch: Any, place: Place) -> None:
        if isinstance(batch, Tensor) and batch.dim() == 2:
            seen = self._seen.setdefault(place, _Seen())
            for row in batch.tolist():
                seen.take(row)
        elif isinstance(batch, Mapping | tuple | list):
            for key, each in batch.items() if isinstance(batch, Mapping) else enumerate(batch):
                self._learn(each, (*place, key))


@dataclass
class _Seen:
    """Rows of tensors at one place.

    Attributes:
        ends: squared lengths of the runs that end rows, by value.
        within: how often a value stands elsewhere.
        constant: values that make up whole rows.
    """

    ends: Counter[Any] = field(default_factory=Counter)
    within: Counter[Any] = field(default_factory=Counter)
    constant: set[Any] = field(default_factory=set)

    def take(self, row: list[Any]) -> None:
        run = next((number for number, each in enumerate(reversed(row)) if each != row[-1]), len(row))
        if run == len(row):
            self.constant.update(row[-1:])
            return
        self.ends[row[-1]] += run * run
        self.within.update(row[:-run])


@dataclass(frozen=True)
class Merger:
    """Joins parts of all ranks to one batch: tensors, and lists of samples, one after the other.

    Attributes:
        rows: (ranks,) samples in each part, where they are known: they tell which dimension is that of the batch.
        fillers: tensors that were padded to different lengths are padded further, with these values.
        only: keep this part alone, as long as the longest; None for all.
    """

    rows: Sequence[int | None]
    fillers: Fillers
    only: int | None = None

    def merged(self, parts: Sequence[Any], place: Place = ()) -> Any:
        """The parts, of the same structure, as one.

        Raises:
            CannotMergeError: they differ in structure or in the number of dimensions.
        """
        first = parts[0]
        if isinstance(first, Tensor):
            return self._joined(list(parts), place)
        if isinstance(first, Mapping):
            if any(each.keys() != first.keys() for each in parts):
                raise CannotMergeError("batches with different keys")
            found = {key: self.merged([each[key] for each in parts], (*place, key)) for key in first}
            return type(first)(found)  # type: ignore[call-arg]
        if isinstance(first, tuple | list):
            if any(isinstance(leaf, Tensor | Mapping | tuple | list) for leaf in first):
                if len({len(each) for each in parts}) > 1:
                    raise CannotMergeError("batches with different numbers of parts")
                joined = [self.merged([each[at] for each in parts], (*place, at)) for at in range(len(first))]
                return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)
            return type(first)(leaf for each in self._chosen(parts) for leaf in each)  # labels, names
        return _same(self._chosen(parts))

    def _chosen(self, parts: Sequence[Any]) -> Sequence[Any]:
        return parts if self.only is None else parts[self.only : self.only + 1]

    def _joined(self, parts: list[Tensor], place: Place) -> Tensor:
        if len({each.dim() for each in parts}) > 1:
            raise CannotMergeError(f"batches of shapes {', '.join(str(tuple(each.shape)) for each in parts)}")
        if parts[0].dim() == 0:
            return torch.as_tensor(_same(self._chosen(parts)))
        along = _batch_dimension(parts, self.rows)
        longest = [max(each.shape[dim] for each in parts) for dim in range(parts[0].dim())]
        if any(each.shape[dim] != size for each in parts for dim, size in enumerate(longest) if dim != along):
            value = self.fillers.value(place)
            parts = [_padded(each, longest, along, value) for each in parts]
        return torch.cat(tuple(self._chosen(parts)), along)


def merged(parts: Sequence[Any], rows: Sequence[int | None] = ()) -> Any:
    """Parts of all ranks as one batch, padded as they show; see `Merger`.

    Raises:
        CannotMergeError: they make no batch.
    """
    return Merger(rows, Fillers(lambda: parts)).merged(parts)


def _batch_dimension(parts: list[Tensor], rows: Sequence[int | None]) -> int:
    """The first one, unless another alone has as many entries as there are samples."""
    if len(rows) != len(parts):
        return 0
    fitting = [
        dim
        for dim in range(parts[0].dim())
        if all(each.shape[dim] == count for each, count in zip(parts, rows, strict=True))
    ]
    return fitting[0] if fitting else 0


def _padded(tensor: Tensor, longest: list[int], along: int, value: Any) -> Tensor:
    missing = [0 if dim == along else size - tensor.shape[dim] for dim, size in enumerate(longest)]
    amounts = [amount for size in reversed(missing) for amount in (0, size)]
    return torch.nn.functional.pad(tensor, amounts, value=value)


def _same(parts: Sequence[Any]) -> Any:
    if any(not _equal(each, parts[0]) for each in parts):
        raise CannotMergeError(f"{type(parts[0]).__name__} values that differ between ranks")
    return parts[0]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def in_double(value: Any) -> Any:
    """The same with floating-point tensors in float64."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return type(value)({key: in_double(each) for key, each in value.items()})  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(in_double(each) for each in value))
    if isinstance(value, tuple | list):
        return type(value)(in_double(each) for each in value)
    return value
