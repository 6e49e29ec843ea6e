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

from paceline.records.errors import Exit, PacelineError
from paceline.tasks.task import Task
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
        """Take (7,) values of this step; return what can be read now, oldest first."""
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


class Counts:
    """Checks what the loss counts in each step, on numbers that are equal on all ranks.

    Args:
        task: with count="samples" its loss has to count each sample of a batch once.
        samples: used before the first step that is checked.
    """

    def __init__(self, task: Task, samples: int) -> None:
        self._task = task
        self._counted = float(samples)
        self._told = False

    def check(self, count: float, step: int, samples: int) -> str:
        """Take in a step.

        Args:
            count: of the step.
            step: its number.
            samples: used up to and with it.

        Returns:
            a note for people, or nothing.

        Raises:
            PacelineError: a count below 0, or one that is not the number of samples where that was promised.
        """
        name = self._task.name
        if count < 0:
            raise PacelineError(
                f"the loss of task {name} counts {count:g} at step {step}",
                why="a mean over a negative count would turn the gradient around",
                hint="let Loss.count be the number of samples or tokens, or a sum of weights of 0 and more",
                exit_code=Exit.FAILED,
            )
        before, self._counted = self._counted, self._counted + count
        if self._task.count == "samples" and self._counted != samples:
            raise PacelineError(
                f"the loss of task {name} counts {count:g} where batch {step} has {samples - before:g} samples",
                why='the Task promises count="samples", and gradients are scaled by that',
                hint='leave count="samples" out of the Task: the count is then taken from the loss. '
                "Or let the collate function keep every sample",
                exit_code=Exit.FAILED,
            )
        if count or self._told:
            return ""
        self._told = True
        return (
            f"step {step}: the counts of the loss add up to 0, so this batch has no loss and its gradient is taken "
            "as 0; further such steps are not noted"
        )
