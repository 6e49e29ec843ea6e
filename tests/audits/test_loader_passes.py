"""Passes of ranks are aligned, bounded, and kept apart by attempt."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from paceline.audits.index_set import LARGEST, IndexSet, bits_of, first_of, shared, union
from paceline.audits.loader_passes import LEDGER_PASSES, MOST_PASSES, LoaderPasses, same_data
from tests.audits.loader_events import TRAIN, begun, read, shuffled


def fed(*ranks):
    """What two or more ranks wrote."""
    passes = LoaderPasses()
    for rank, events in enumerate(ranks):
        for event in events:
            passes.feed(rank, event, len(ranks))
    return passes


def test_a_set_of_indices_agrees_with_python_s_own():
    """Against set() on random indices, with those that come twice."""
    draws = [random.Random(seed).choices(range(500), k=120) for seed in range(3)]
    sets = [IndexSet() for _ in draws]
    for one, draw in zip(sets, draws, strict=True):
        one.add(draw[:50])
        one.add(draw[50:])

    plain = [set(draw) for draw in draws]
    assert [one.bits for one in sets] == [sum(1 << index for index in each) for each in plain]
    assert [one.again for one in sets] == [{index for index in draw if draw.count(index) > 1} for draw in draws]
    assert [one.count for one in sets] == [120] * 3
    bits = [one.bits for one in sets]
    assert union(bits) == bits_of(set.union(*plain))
    twice = {index for index in range(500) if sum(index in each for each in plain) > 1}
    assert shared(bits) == bits_of(twice)
    assert first_of(bits_of(twice)) == sorted(twice)[:5]


@pytest.mark.parametrize("index", [-1, LARGEST])
def test_an_index_out_of_range_spoils_the_pass(index):
    """Its bitmap would be too large, or it is no index."""
    (each,) = fed(*[read([[0, index], [1, 2]])] * 2).shared()

    assert each.bits is None


def test_memory_is_bounded_by_the_first_passes():
    """Of many passes the first are kept, and the samples of fewer."""
    events = [event for number in range(20) for event in read(shuffled(number), number=number)]

    passes = fed(events, events).shared()

    assert [each.ordinal for each in passes] == list(range(MOST_PASSES))
    assert [each.bits is not None for each in passes] == [n < LEDGER_PASSES for n in range(MOST_PASSES)]


def test_a_loader_that_is_made_anew_continues_its_series():
    """Another number, the same line."""
    events = [event for loader in range(3) for event in read(shuffled(loader), loader=loader)]

    assert [each.ordinal for each in fed(events, events).shared()] == [0, 1, 2]


def test_attempts_of_a_restarted_job_are_kept_apart():
    """Numbers begin again."""
    first = read(shuffled(0)[:2], exhausted=False)
    second = [replace(event, attempt=2) for event in read(shuffled(1))]

    passes = fed(first + second, first + second).shared()

    assert [each.first.attempt for each in passes] == [first[0].attempt, 2]
    assert passes[0].exhausted is False
    assert passes[1].bits == {0: bits_of(range(24)), 1: bits_of(range(24))}


def test_loaders_of_other_lines_and_lengths_are_not_compared():
    """One rank previews, another reads other data."""
    assert fed(read(shuffled(0)), read(shuffled(0), place=None)).shared() == []
    assert fed(read(shuffled(0)), read(shuffled(0), samples=25)).shared() == []
    assert [each.first.place for each in fed(*[read(shuffled(0))] * 2).shared()] == [TRAIN]


def test_data_are_the_same_only_where_a_digest_says_so():
    """Attributes can only tell that they are not."""
    assert same_data([begun(), begun()]) is True
    assert same_data([begun(content=None), begun(content=None)]) is None
    assert same_data([begun(content=None, attributes="a"), begun(content=None, attributes="a")]) is None
    assert same_data([begun(), begun(attributes="a")]) is False
    assert same_data([begun(), begun(content="d")]) is False
    assert same_data([begun(), begun(root_samples=25)]) is False
