"""Random numbers of torch: recorded in each rank, and given to the process that replays all ranks.

Dropout masks, noise and random indices then belong to the same samples in both runs. A dispatch mode sees the
operations that draw, whichever function calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Draw = tuple[str, Any]
"""Name of an operation and what it gave."""


class DrawRecorder(TorchDispatchMode):
    """Keeps each random tensor.

    Args:
        active: whether draws belong to the training now.
        keep: is given each draw.
    """

    def __init__(self, active: Callable[[], bool], keep: Callable[[Draw], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._active, self._keep = active, keep

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operation."""
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags and self._active() and isinstance(result, Tensor):
            self._keep((str(func), result.detach().clone()))
        return result


class DrawReplayer(TorchDispatchMode):
    """Gives recorded draws instead of new ones.

    Args:
        active: whether draws belong to the training now.
        recorded: the draws, one of each rank, that stand for the next one here.
        note: is told what cannot be replayed.
        grow: where one process asks for as many numbers as a rank, it receives those of all ranks.
    """

    def __init__(
        self,
        active: Callable[[], bool],
        recorded: Callable[[], Sequence[Draw | None]],
        note: Callable[[str], None],
        *,
        grow: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._active, self._recorded, self._note, self._grow = active, recorded, note, grow

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operation and put the recorded numbers into its result."""
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded not in func.tags or not self._active() or not isinstance(result, Tensor):
            return result
        draws = self._recorded()
        if not draws or any(each is None or each[0] != str(func) for each in draws):
            self._note(f"one process draws other random numbers than {len(draws)} ranks do ({func})")
            return result
        in_place = str(func).split(".")[1].endswith("_")
        joined = self._joined([each[1] for each in draws if each is not None], result, in_place=in_place)
        if joined is None:
            return result
        if joined.shape == result.shape:
            return result.copy_(joined)
        return joined.to(result.dtype)

    def _joined(self, parts: list[Tensor], result: Tensor, *, in_place: bool) -> Tensor | None:
        """The numbers of all ranks in the shape that is asked for; None where there is no such way."""
        for dim in range(result.dim()):
            around = {tuple(each.shape[:dim] + each.shape[dim + 1 :]) for each in [*parts, result]}
            if len(around) == 1 and sum(each.shape[dim] for each in parts) == result.shape[dim]:
                return torch.cat(parts, dim)
        if (padded := _padded(parts, result)) is not None:
            return padded
        if all(each.shape == result.shape and torch.equal(each, parts[0]) for each in parts):
            return parts[0]
        if self._grow and not in_place and result.dim() and all(each.shape == result.shape for each in parts):
            return torch.cat(parts)  # indices that choose a batch, of the size that a rank takes
        self._note("ranks draw random numbers that belong to no sample")
        return parts[0] if parts[0].shape == result.shape else None


def _padded(parts: list[Tensor], result: Tensor) -> Tensor | None:
    """The numbers of ranks whose batches are padded to different lengths; numbers for further padding stay new ones.

    Returns:
        None where the parts together are not as many samples as the result.
    """
    if any(each.dim() != result.dim() for each in parts):
        return None
    for along in range(result.dim()):
        others = [[size for dim, size in enumerate(each.shape) if dim != along] for each in [*parts, result]]
        longest = [max(sizes) for sizes in zip(*others[:-1], strict=True)]
        if sum(each.shape[along] for each in parts) != result.shape[along] or longest != others[-1]:
            continue
        joined, begin = result.clone(), 0
        for each in parts:
            place = [slice(size) for size in each.shape]
            place[along] = slice(begin, begin + each.shape[along])
            joined[tuple(place)] = each.to(result.dtype)
            begin += each.shape[along]
        return joined
    return None
