"""Batches of ranks become the batch of one process."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.observe.parity.merging import CannotMergeError, in_double, merged

Pair = namedtuple("Pair", ["x", "y"])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3))
def test_tensors_follow_each_other_in_the_order_of_ranks(sizes: list[int], further: int) -> None:
    """Whatever their other dimensions are."""
    shape = (2,) * further
    parts = [torch.full((size, *shape), float(rank)) for rank, size in enumerate(sizes)]

    assert torch.equal(merged(parts), torch.cat(parts))


def test_structures_keep_their_types() -> None:
    """Tuples, named tuples, lists, mappings, and lists of names."""
    one = {"image": torch.zeros(2, 3), "name": ["a", "b"], "pair": Pair(torch.zeros(2), torch.ones(2)), "epoch": 3}
    other = {"image": torch.ones(1, 3), "name": ["c"], "pair": Pair(torch.zeros(1), torch.ones(1)), "epoch": 3}
    joined = merged([one, other])

    assert joined["image"].tolist() == [[0] * 3, [0] * 3, [1] * 3]
    assert joined["name"] == ["a", "b", "c"]
    assert isinstance(joined["pair"], Pair)
    assert joined["pair"].y.tolist() == [1, 1, 1]
    assert joined["epoch"] == 3


def test_the_dimension_of_the_batch_is_the_one_with_as_many_entries_as_samples() -> None:
    """Sequences may come first, as in `nn.LSTM`."""
    parts = [torch.zeros(7, 2), torch.ones(7, 3)]

    assert merged(parts, [2, 3]).shape == (7, 5)


def test_shorter_rows_are_filled_up_with_the_value_that_fills_the_others() -> None:
    """A collate function pads to the longest sample of its own batch."""
    parts = [torch.tensor([[5, 6, 7, 8], [5, 6, -100, -100]]), torch.tensor([[5, 6], [5, 7]])]

    assert merged(parts).tolist() == [[5, 6, 7, 8], [5, 6, -100, -100], [5, 6, -100, -100], [5, 7, -100, -100]]


@pytest.mark.parametrize(
    "parts",
    [[{"a": 1}, {"b": 1}], [torch.zeros(2), torch.zeros(2, 2)], [3, 4], [(torch.zeros(1),), (torch.zeros(1),) * 2]],
    ids=["keys", "dimensions", "values", "lengths"],
)
def test_what_makes_no_batch_is_refused(parts: list[object]) -> None:
    """The caller says so in the verdict."""
    with pytest.raises(CannotMergeError):
        merged(parts)


def test_only_floating_point_becomes_float64() -> None:
    """Indices and labels stay what they are."""
    pair = in_double(Pair(torch.zeros(2, dtype=torch.float16), [torch.zeros(2, dtype=torch.int32), "name"]))

    assert pair.x.dtype == torch.float64
    assert pair.y[0].dtype == torch.int32
    assert pair.y[1] == "name"
