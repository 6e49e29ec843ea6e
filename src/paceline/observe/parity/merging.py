"""Joins what ranks had into what one process has: batches in the order of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class CannotMergeError(ValueError):
    """Parts of ranks that make no batch."""


def merged(parts: Sequence[Any], rows: Sequence[int | None] = ()) -> Any:
    """Parts of all ranks as one batch: tensors, and lists of samples, one after the other.

    Args:
        parts: (ranks,) of the same structure. Tensors that were padded to different lengths are padded further.
        rows: (ranks,) samples in each part, where they are known: they tell which dimension is that of the batch.

    Raises:
        CannotMergeError: they differ in structure or in the number of dimensions.
    """
    first = parts[0]
    if isinstance(first, Tensor):
        return _joined(list(parts), rows)
    if isinstance(first, Mapping):
        if any(each.keys() != first.keys() for each in parts):
            raise CannotMergeError("batches with different keys")
        return type(first)({key: merged([each[key] for each in parts], rows) for key in first})  # type: ignore[call-arg]
    if isinstance(first, tuple | list):
        if any(isinstance(leaf, Tensor | Mapping | tuple | list) for leaf in first):
            if len({len(each) for each in parts}) > 1:
                raise CannotMergeError("batches with different numbers of parts")
            joined = [merged([each[number] for each in parts], rows) for number in range(len(first))]
            return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)
        return type(first)(leaf for each in parts for leaf in each)  # labels, names
    return _same(parts)


def _joined(parts: list[Tensor], rows: Sequence[int | None]) -> Tensor:
    if len({each.dim() for each in parts}) > 1:
        raise CannotMergeError(f"batches of shapes {', '.join(str(tuple(each.shape)) for each in parts)}")
    if parts[0].dim() == 0:
        return torch.as_tensor(_same(parts))
    along = _batch_dimension(parts, rows)
    longest = [max(each.shape[dim] for each in parts) for dim in range(parts[0].dim())]
    if any(each.shape[dim] != size for each in parts for dim, size in enumerate(longest) if dim != along):
        value = _padding(parts)
        parts = [_padded(each, longest, along, value) for each in parts]
    return torch.cat(parts, along)


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


def _padding(parts: list[Tensor]) -> Any:
    """The value that fills up rows: the one that ends most of them more than once, but does not make them up."""
    counts: Counter[Any] = Counter()
    for part in parts:
        for row in part.reshape(part.shape[0], -1).tolist() if part.dim() == 2 else ():
            run = next((number for number, each in enumerate(reversed(row)) if each != row[-1]), len(row))
            if 1 < run < len(row):
                counts[row[-1]] += run
    return counts.most_common(1)[0][0] if counts else 0


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
