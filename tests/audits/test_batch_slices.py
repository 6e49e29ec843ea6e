"""Whole batches are told from slices by the shapes of inputs."""

from __future__ import annotations

import pytest

from paceline.audits.batch_slices import BatchSlices
from paceline.audits.loader_passes import LoaderPasses
from tests.audits.loader_events import read, seen, shuffled


def verdict(*shapes, world=2, loader=0, **more):
    """On ranks that all have a loader with batches of 4 and were given inputs of these shapes."""
    passes, slices = LoaderPasses(), BatchSlices()
    for rank in range(world):
        for event in read(shuffled(rank), **more):
            passes.feed(rank, event, world)
        for step, shape in enumerate(shapes):
            slices.feed(rank, seen(step, "d", shape[0], shape=list(shape), loader=loader, number=0), world)
    (each,) = passes.shared()
    return slices.whole(each)


@pytest.mark.parametrize(
    ("shapes", "whole"),
    [
        ([(4, 3)], True),
        ([(4, 3), (2, 3)], True),  # a short tail, or a second input
        ([(2, 3)], False),
        ([(2, 4)], False),
        ([(7, 4, 3)], True),  # sequence first
        ([(7, 3)], None),
        ([(1, 3)], None),  # chunks of accumulation
        ([], None),
    ],
)
def test_shapes_tell(shapes, whole):
    """Rows of a batch of 4, or of its half, or neither."""
    assert verdict(*shapes) is whole


def test_the_half_of_an_odd_batch_is_rounded_either_way():
    """3 ranks share 4 rows: 1 or 2 each."""
    assert verdict((1, 9), world=3) is False
    assert verdict((2, 9), world=3) is False


def test_a_loader_without_a_batch_size_is_judged_by_what_it_gave():
    """A batch sampler decides: 24 samples in 6 batches."""
    assert verdict((4, 9), batch_size=None) is True
    assert verdict((2, 9), batch_size=None) is False


def test_inputs_of_no_loader_or_another_are_passed_over():
    """They say nothing of this one."""
    assert verdict((4, 9), loader=None) is None
    assert verdict((4, 9), loader=1) is None


def test_one_rank_that_takes_slices_decides():
    """The others may be unknown."""
    passes, slices = LoaderPasses(), BatchSlices()
    for rank in range(2):
        for event in read(shuffled(rank)):
            passes.feed(rank, event, 2)
    slices.feed(0, seen(1, "d", 2, loader=0), 2)
    (each,) = passes.shared()

    assert slices.whole(each) is False
    assert not slices.trained(each)
