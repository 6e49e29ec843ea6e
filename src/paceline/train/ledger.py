"""Reading the ledger without stopping the device.

On a CPU the numbers of a step are there when its backward ends. On CUDA asking for them would make the host wait for
the device at every step, so they are copied aside and read two steps later, by when they have long arrived. The lag
is the same on all ranks, so what is decided on them is decided on the same step everywhere.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from paceline.train.objective import Totals, read_totals

CUDA_LAG = 2


class LedgerReader:
    """First in, first out, `lag` steps later.

    Args:
        device: of the model.
    """

    def __init__(self, device: torch.device) -> None:
        self.lag = CUDA_LAG if device.type == "cuda" else 0
        self._waiting: deque[tuple[Tensor, Any]] = deque()

    def push(self, values: Tensor) -> list[Totals]:
        """Take (5,) values of this step; return what can be read now, oldest first."""
        if self.lag == 0:
            return [read_totals(values)]
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._waiting.append((host, event))
        return self._take(self.lag)

    def drain(self) -> list[Totals]:
        """Everything that is still on its way."""
        return self._take(0)

    def _take(self, leave: int) -> list[Totals]:
        read = []
        while len(self._waiting) > leave:
            host, event = self._waiting.popleft()
            event.synchronize()
            read.append(read_totals(host))
        return read
