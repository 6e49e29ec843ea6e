"""Streams that give several ranks the same batches at different steps."""

from __future__ import annotations

from paceline.audits.dp125_iterable_not_sharded import IterableNotSharded
from tests.audits.loader_events import TRAIN, judged, read


def stream(first, count=8, **more):
    """A pass over a stream from a batch on."""
    inputs = [f"batch {(first + number) % 12}" for number in range(count)]
    given = {"iterable": True, "samples": None, "root_samples": None, "sampler": "_InfiniteConstantSampler"}
    return read([[] for _ in range(count)], inputs=inputs, recorded=False, **(given | more))


def test_the_same_batches_in_another_order_are_reported():
    """Workers of ranks begin at different files of the same list."""
    (found,) = judged(IterableNotSharded, [stream(0, 12), stream(3, 12), stream(6, 12)])

    assert (found.severity, found.faults, found.line) == ("error", ["F11"], TRAIN.line)
    assert "ranks 0, 1 and 2" in found.message
    assert "12 of 12" in found.message


def test_half_of_the_batches_are_probable_only():
    """Ranks overlap in part."""
    (found,) = judged(IterableNotSharded, [stream(0), stream(4)])

    assert (found.severity, found.evidence["same"]) == ("warning", 4)


def test_the_same_batches_at_the_same_steps_are_another_audit_s():
    """Identical batches."""
    assert judged(IterableNotSharded, [stream(0), stream(0)]) == []


def test_disjoint_parts_of_a_stream_are_right():
    """Each rank has its own six batches."""
    assert judged(IterableNotSharded, [stream(0, 6), stream(6, 6)]) == []


def test_few_different_batches_prove_nothing():
    """A synthetic stream cycles over a handful."""
    assert judged(IterableNotSharded, [stream(0, 5), stream(1, 5)]) == []


def test_parts_that_rotate_between_passes_are_right():
    """Rank r reads part (r + epoch) % world."""
    ranks = [[*stream(6 * r, 6), *stream(6 - 6 * r, 6, number=1, step=6)] for r in range(2)]

    assert judged(IterableNotSharded, ranks) == []


def test_map_style_data_and_tensor_parallel_ranks_are_passed_over():
    """Their indices are judged, and their batches are equal on purpose."""
    assert judged(IterableNotSharded, [stream(0, iterable=False), stream(1, iterable=False)]) == []
    assert judged(IterableNotSharded, [stream(rank, 12) for rank in range(4)], group=2) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing."""
    assert judged(IterableNotSharded, [stream(0, 12), stream(3, 12), []]) == []
