"""Random numbers of ranks are given to the same samples in one process."""

from __future__ import annotations

import torch

from paceline.observe.parity.draws import DrawReplayer


def replayed(parts: list[torch.Tensor], shape: tuple[int, ...]) -> tuple[torch.Tensor, list[str]]:
    """A dropout mask that is drawn in place where ranks drew these, and what was noted."""
    notes: list[str] = []
    draws = [("aten.bernoulli_.float", each) for each in parts]
    with DrawReplayer(lambda: True, lambda: draws, notes.append):
        drawn = torch.full(shape, 9.0).bernoulli_(0.5)
    return drawn, notes


def test_masks_follow_each_other_in_the_order_of_ranks() -> None:
    """Along the dimension of the samples."""
    drawn, notes = replayed([torch.full((2, 3), 5.0), torch.full((1, 3), 6.0)], (3, 3))

    assert drawn.tolist() == [[5] * 3, [5] * 3, [6] * 3]
    assert not notes


def test_masks_of_padded_batches_keep_to_their_samples() -> None:
    """One process pads further; what it draws for that belongs to no sample."""
    drawn, notes = replayed([torch.full((2, 2, 4), 5.0), torch.full((1, 3, 4), 6.0)], (3, 3, 4))

    assert (drawn[:2, :2] == 5).all()
    assert (drawn[2] == 6).all()
    assert set(drawn[:2, 2].flatten().tolist()) <= {0.0, 1.0}
    assert not notes


def test_numbers_that_belong_to_no_sample_are_noted() -> None:
    """Two ranks drew others, and one process takes no more than one of them."""
    _, notes = replayed([torch.full((3,), 5.0), torch.full((3,), 6.0)], (3,))

    assert notes == ["ranks draw random numbers that belong to no sample"]
