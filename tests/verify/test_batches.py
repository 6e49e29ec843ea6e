"""Batches that ranks keep are those that one process replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.observe.parity.batches import PADDED, Batches
from paceline.records.parity import ParityTask, rank_folder


class Both:
    """Two ranks that keep batches below a folder, and one process that replays them."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.said: list[str] = []
        for rank in range(2):
            (rank_folder(folder, rank) / "batches").mkdir(parents=True)
        task = ParityTask(folder=str(folder), steps=6, double=True, world=2)
        self.ranks = [Batches(task, rank, self.said.append, self.said.append) for rank in range(2)]
        replay = ParityTask(folder="", steps=6, double=True, world=2, source=str(folder), **changes)
        self.one = Batches(replay, 0, self.said.append, self.said.append)


def test_a_rank_with_a_loader_of_its_own_counts_the_passes_of_all(tmp_path: Path) -> None:
    """Rank 0 evaluates, so the loader of the second epoch has another number there."""
    both = Both(tmp_path)
    for rank, loaders in enumerate([(0, 2), (0, 1)]):
        for loader in loaders:
            both.ranks[rank].keep((loader, 0), torch.tensor([float(rank), loader]), 2)

    assert both.one.replays((0, 0))
    assert both.one.replay((0, 0), None).tolist() == [0, 0, 1, 0]
    assert both.one.replays((2, 0))
    assert both.one.replay((2, 0), None).tolist() == [0, 2, 1, 1]
    with pytest.raises(StopIteration):
        both.one.replay((2, 0), None)
    assert not both.said


def test_a_loader_that_ranks_do_not_train_on_is_left_alone(tmp_path: Path) -> None:
    """It gives its own batches, and does not take the place of another."""
    both = Both(tmp_path)
    both.ranks[0].keep((0, 0), torch.zeros(1), 1)

    assert both.one.replays((0, 0))
    assert not both.one.replays((1, 0))
    assert not both.one.replays((1, 0))


def test_batches_are_padded_with_the_value_that_fills_up_others(tmp_path: Path) -> None:
    """The batches at hand need not show it: 7 ends both rows here by chance."""
    both = Both(tmp_path)
    first = [[[7, 7], [2, 7]], [[5, 3, 2], [4, 7, 7]]]
    for rank, rows in enumerate(first):
        both.ranks[rank].keep((0, 0), torch.tensor(rows), 2)
        both.ranks[rank].keep((0, 0), torch.tensor([[7, 2, 9, 0, 0], [7, 7, 3, 2, 1], [1, 7, 7, 4, 0]]), 3)
    both.one.replays((0, 0))

    assert both.one.replay((0, 0), None).tolist() == [[7, 7, 0], [2, 7, 0], *first[1]]
    assert both.said == [PADDED]


def test_lengths_without_any_padding_are_noted(tmp_path: Path) -> None:
    """Zeros then may be samples."""
    both = Both(tmp_path)
    both.ranks[0].keep((0, 0), torch.tensor([[1, 2]]), 1)
    both.ranks[1].keep((0, 0), torch.tensor([[3, 4, 5]]), 1)
    both.one.replays((0, 0))
    both.one.replay((0, 0), None)

    assert both.said[-1].startswith("batches of the ranks have different lengths")


def test_the_part_of_a_rank_alone_is_padded_as_for_all(tmp_path: Path) -> None:
    """So that its gradient is what it adds to that of all."""
    both = Both(tmp_path)
    both.ranks[0].keep((0, 0), torch.tensor([[1, 2], [3, 0]]), 2)
    both.ranks[1].keep((0, 0), torch.tensor([[3, 4, 5, 6], [3, 4, 0, 0]]), 2)
    both.one.replays((0, 0))

    assert both.one.replay((0, 0), 0).tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]


def test_micro_batches_come_in_turn_where_one_process_takes_them_so(tmp_path: Path) -> None:
    """First those of all ranks, then the second ones."""
    both = Both(tmp_path, interleave=True)
    for rank in range(2):
        for batch in range(2):
            both.ranks[rank].keep((0, 0), torch.tensor([rank, batch]), 2)
    both.one.replays((0, 0))

    assert [both.one.replay((0, 0), None).tolist() for _ in range(4)] == [[0, 0], [1, 0], [0, 1], [1, 1]]
