"""A batch of no samples, for ranks that have none."""

from __future__ import annotations

from collections import UserDict, namedtuple

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from paceline.train.batch_plan import Plan
from paceline.train.model import idles, without_samples

Pair = namedtuple("Pair", "x y")


def batch(samples: int) -> dict[str, object]:
    """Features, time first with as many steps as samples, nodes of graphs, a table for all, and words."""
    return {
        "x": Pair(torch.ones(samples, 3), torch.ones(samples, dtype=torch.int64)),
        "time first": torch.ones(5, samples, 2),
        "longest": torch.ones(samples + 4, samples, 2),
        "nodes": torch.ones(7 * samples + 1, 2),
        "table": torch.ones(2, 2),
        "words": ["a"] * samples,
        "count": [torch.tensor(2.0), None, 1.5],
    }


def test_samples_are_left_out_along_whatever_dimension_they_have() -> None:
    """Found by comparing two batches; what is the same in both stays."""
    empty = without_samples(batch(2), batch(3), (2, 3))

    assert empty["x"].x.shape == (0, 3)
    assert empty["x"].y.dtype == torch.int64
    assert empty["time first"].shape == (5, 0, 2)
    assert empty["longest"].shape == (6, 0, 2)
    assert empty["nodes"].shape == (0, 2)
    assert empty["table"].shape == (2, 2)
    assert empty["words"] == []
    assert empty["count"] == [torch.tensor(2.0), None, 1.5]


@pytest.mark.parametrize("part", [pack_sequence([torch.ones(2)]), UserDict(x=1), object()])
def test_a_form_of_which_no_empty_one_is_known_is_no_guess(part: object) -> None:
    """A rank that ran the model on real samples in its place would count them twice."""
    with pytest.raises(ValueError, match="it holds a"):
        without_samples((torch.ones(2), part), (torch.ones(3), part), (2, 3))


@pytest.mark.parametrize(
    ("samples", "batch_size", "parts", "world", "expected"),
    [(20, 10, 1, 3, False), (21, 10, 1, 2, True), (23, 10, 1, 3, False), (20, 10, 4, 3, True), (5, 5, 1, 1, False)],
)
def test_a_run_in_which_every_rank_always_has_samples_needs_none(samples, batch_size, parts, world, expected) -> None:
    """Only the last batch of an epoch, or many micro-batches, leave a rank without."""
    assert idles(Plan(samples, batch_size, parts, 0, world, 0), steps=10) == expected
