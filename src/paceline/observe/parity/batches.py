"""Training batches of a parity run: kept by each rank, and joined for the process that replays all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.observe.parity.merging import CannotMergeError, Fillers, Merger, merged
from paceline.records.parity import ParityTask, batch_file, input_file

Pass = tuple[int, int]
"""A loader, and which of its passes."""


class Batches:
    """Keeps or replays batches. Passes that are trained on are counted: a rank that evaluates has loaders of its own.

    Args:
        task: of the run.
        rank: of this process.
        note: is told what keeps the runs from being comparable.
        adjusted: is told what one process does in another way.
    """

    def __init__(
        self, task: ParityTask, rank: int, note: Callable[[str], None], adjusted: Callable[[str], None]
    ) -> None:
        self._task, self._rank, self._note, self._adjusted = task, rank, note, adjusted
        self._source = Path(task.source)
        self._fillers = Fillers(self._recorded)
        self.start_again()

    def start_again(self) -> None:
        """Forget all passes."""
        self._numbers: dict[Pass, int | None] = {}
        self._taken: dict[int, int] = {}

    def keep(self, key: Pass, batch: Any, rows: int | None) -> None:
        """Write a batch, with its number of samples."""
        number = self._numbers.setdefault(key, len(self._numbers))
        assert number is not None
        torch.save((batch, rows), batch_file(Path(self._task.folder), self._rank, (number, self._next(number))))

    def replays(self, key: Pass) -> bool:
        """True if ranks trained on this pass."""
        if key not in self._numbers:
            number = sum(each is not None for each in self._numbers.values())
            there = any(batch_file(self._source, rank, (number, 0)).exists() for rank in range(self._task.world))
            self._numbers[key] = number if there or key[1] else None  # a loader that goes on has come to its end
        return self._numbers[key] is not None

    def replay(self, key: Pass, alone: int | None) -> Any:
        """The next batch of a pass.

        Args:
            key: the pass.
            alone: only the part of this rank, padded as for all.

        Raises:
            StopIteration: there is none.
        """
        task, number = self._task, self._numbers[key]
        assert number is not None
        taken, ranks = self._next(number), range(task.world)
        if task.interleave:
            ranks, taken = range(taken % task.world, taken % task.world + 1), taken // task.world
        paths = [batch_file(self._source, rank, (number, taken)) for rank in ranks]
        present = [path for path in paths if path.exists()]
        if not present:
            raise StopIteration
        if len(present) < len(paths):
            self._note("ranks take different numbers of batches")
        loaded = [torch.load(path, weights_only=False) for path in present]
        parts, rows = zip(*(reversed(loaded) if task.reverse else loaded), strict=True)
        try:
            batch = Merger(rows, self._fillers, alone).merged(parts)
        except CannotMergeError as error:
            self._note(f"batches of the ranks cannot be joined: {error}")
            return parts[0]
        if self._fillers.needed:
            self._adjusted(PADDED)
        if self._fillers.unknown:
            self._note("batches of the ranks have different lengths, and none shows which value fills them up")
        return batch

    def keep_input(self, number: int, tensors: list[Tensor]) -> None:
        """Write what a forward pass is given, where that comes from no loader."""
        torch.save(tensors, input_file(Path(self._task.folder), self._rank, number))

    def is_input(self, number: int, tensors: list[Tensor]) -> bool:
        """True if a forward pass gets the inputs that ranks got."""
        task, ranks = self._task, range(self._task.world)
        if task.interleave:
            ranks, number = range(number % task.world, number % task.world + 1), number // task.world
        paths = [input_file(self._source, rank, number) for rank in ranks]
        parts = [torch.load(path, weights_only=False) for path in paths if path.exists()]
        try:
            joined = merged(parts[::-1] if task.reverse else parts)
        except (CannotMergeError, IndexError):
            return False
        return len(joined) == len(tensors) and all(
            one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
            for one, other in zip(joined, tensors, strict=True)
        )

    def _next(self, number: int) -> int:
        taken = self._taken[number] = self._taken.get(number, -1) + 1
        return taken

    def _recorded(self) -> Iterator[Any]:
        for path in sorted(self._source.glob("rank-*/batches/*.pt")):
            yield torch.load(path, weights_only=False)[0]


PADDED = "one process fills up batches to the length of the longest rank's"
"""Said of a replay whose ranks had batches of different lengths."""
