"""The operations of the first forward pass, with what they give: the line where ranks and one process part."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.observe.call_site import user_place
from paceline.records.parity import Operation

_MOST = 5000
_UNDEFINED = ("aten.empty", "aten.new_empty")
"""Operations that give memory as it is."""


class OperationLog(TorchDispatchMode):
    """Notes each operation of torch with a floating-point result, until it is closed.

    Args:
        path: of the file that `close` writes.
        aside: whether torch makes a batch right now, whose operations are not the script's.
    """

    def __init__(self, path: Path, aside: Callable[[], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._path, self._aside = path, aside
        self._found: list[tuple[str, list[int], Tensor, Any]] = []
        self._open = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operation."""
        result = func(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple) and result else result
        counts = func.namespace == "aten" and not func.is_view  # a view of one sample computes nothing
        counts = counts and not str(func).startswith(_UNDEFINED)
        if self._open and counts and len(self._found) < _MOST and not self._aside() and _dense(first):
            wide = first.detach().double()
            sums = torch.stack([wide.sum(), wide.abs().sum()])
            self._found.append((str(func), list(first.shape), sums, user_place()))
        return result

    def close(self) -> None:
        """Write what was noted. Operations that follow are only passed on."""
        if not self._open:
            return
        self._open = False
        if _python_dispatch._get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        lines = []
        for name, shape, sums, place in self._found:
            total, size = sums.tolist()
            if not math.isfinite(total):  # masks hold infinities
                continue
            operation = Operation(name=name.removeprefix("aten."), shape=shape, total=total, size=size, place=place)
            lines.append(msgspec.json.encode(operation) + b"\n")
        self._path.write_bytes(b"".join(lines))
        self._found.clear()


def _dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.layout == torch.strided
