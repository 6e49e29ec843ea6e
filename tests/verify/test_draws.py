"""Random numbers are recorded on ranks and joined for one process."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.observe.parity.draws import Draw, DrawRecorder, DrawReplayer


def recorded(seed: int, size: int) -> list[Draw]:
    """Draws of a rank: a dropout mask, then indices."""
    kept: list[Draw] = []
    torch.manual_seed(seed)
    with DrawRecorder(lambda: True, kept.append):
        nn.functional.dropout(torch.ones(size, 3))
        torch.randint(100, (size,))
    return kept


def replayed(draws: list[list[Draw]], ask: int, *, grow: bool = True) -> tuple[Tensor, Tensor, list[str]]:
    """What one process gets for the same two draws, and notes."""
    notes: list[str] = []
    rounds = iter(zip(*draws, strict=True))
    with DrawReplayer(lambda: True, lambda: list(next(rounds)), notes.append, grow=grow):
        masked = nn.functional.dropout(torch.ones(ask, 3))
        indices = torch.randint(100, (ask,))
    return masked, indices, notes


def test_numbers_of_ranks_follow_each_other() -> None:
    """Each sample keeps its mask and its index, where ranks have different numbers of samples as well."""
    ranks = [recorded(0, 2), recorded(1, 4)]
    masked, indices, notes = replayed(ranks, 6)

    assert torch.equal(indices, torch.cat([draws[1][1] for draws in ranks]))
    assert torch.equal(masked != 0, torch.cat([draws[0][1] for draws in ranks]) != 0)
    assert not notes


def test_indices_of_a_rank_grow_to_those_of_all() -> None:
    """A script that asks for a batch of a rank's size gets the batch of all ranks, unless that is switched off."""
    ranks = [recorded(0, 3), recorded(1, 3)]

    assert replayed(ranks, 3)[1].shape == (6,)
    masked, indices, notes = replayed(ranks, 3, grow=False)
    assert masked.shape == (3, 3)
    assert torch.equal(indices, ranks[0][1][1])
    assert set(notes) == {"ranks draw random numbers that belong to no sample"}


def test_equal_numbers_on_all_ranks_stay_as_they_are() -> None:
    """As those of a layer that is dropped on all ranks."""
    ranks = [recorded(0, 3), recorded(0, 3)]
    _, indices, notes = replayed(ranks, 3)

    assert torch.equal(indices, ranks[0][1][1])
    assert not notes


def test_another_operation_is_noted() -> None:
    """The numbers then belong to something else."""
    notes: list[str] = []
    with DrawReplayer(lambda: True, lambda: [("aten.randn.default", torch.zeros(3))], notes.append):
        torch.rand(3)

    assert notes == ["one process draws other random numbers than 1 ranks do (aten.rand.default)"]


def test_nothing_is_recorded_outside_of_the_training() -> None:
    """Models are made with random numbers as well."""
    kept: list[Draw] = []
    with DrawRecorder(lambda: False, kept.append):
        nn.Linear(2, 2)

    assert not kept
