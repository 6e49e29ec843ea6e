"""The resident data set as a map-style dataset, for frameworks that want to set up a DataLoader themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from contestants.resident import load, normalise

Batch = tuple[Tensor, Tensor]


class ResidentDataset(Dataset[Any]):
    """Gathers and normalises a whole batch at once: DataLoader calls `__getitems__` where a dataset has it."""

    def __init__(self, root: Path) -> None:
        self.images, self.labels = load(root)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return normalise(self.images[index]), self.labels[index]

    def __getitems__(self, indices: list[int]) -> Batch:
        chosen = torch.tensor(indices)
        return normalise(self.images.index_select(0, chosen)), self.labels.index_select(0, chosen)


def as_it_is(batch: Batch) -> Batch:
    """The batch is whole already: nothing to collate."""
    return batch


def resident_loader(root: Path, batch: int, seed: int) -> DataLoader[Any]:
    """A shuffled loader in this process, whole batches only."""
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(
        ResidentDataset(root), batch, shuffle=True, drop_last=True, collate_fn=as_it_is, generator=generator
    )
