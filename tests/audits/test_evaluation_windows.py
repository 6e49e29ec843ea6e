"""What counts between an evaluation and the next training step."""

from __future__ import annotations

import pytest

from paceline.audits.evaluation_windows import EvaluationWindows
from tests.audits.loader_events import begun, called, done, read, seen, sharded, stepped, touched


def window(*after, during=()):
    """Gathers, merges, writes: of an evaluation of 12 samples in batches of 4 after step 5."""
    windows = EvaluationWindows()
    events = read(sharded(0, 2, None), training=False, step=5)
    for event in [events[0], *during, *events[1:], *after]:
        windows.feed(0, event, 2)
    first = events[0]
    return windows.gathers(0, first), windows.merges(0, first), windows.writes(0, first)


@pytest.mark.parametrize(
    ("call", "gathers"),
    [
        (called("all_gather", 48), True),
        (called("all_gather", 47), False),  # less than 4 bytes a sample
        (called("all_reduce", 4000), False),  # a confusion matrix
        (called("all_gather", 48, step=6), False),  # of the next step
        (called("all_gather", 48, by_backward=True), False),
    ],
)
def test_predictions_are_told_from_sums_by_their_size(call, gathers):
    """After the pass, of all samples."""
    assert window(call)[0] is gathers


def test_during_the_pass_the_size_of_a_batch_is_enough():
    """Batch by batch."""
    assert window(during=[called("all_gather", 16)])[0] is True
    assert window(during=[called("all_gather", 15)])[0] is False


@pytest.mark.parametrize(
    ("events", "merges"),
    [
        ([], None),
        ([done()], False),
        ([stepped(6)], False),
        ([seen(6, "d")], False),
        ([stepped(5)], None),  # the step before
        (read(sharded(0, 2), step=5), False),  # a training pass
        ([called("all_reduce", 8)], True),
        ([called("all_reduce", 8, by_backward=True), done()], False),
        ([done(), called("all_reduce", 8)], False),
    ],
)
def test_a_window_closes_when_training_goes_on_or_the_script_ends(events, merges):
    """Before, it is open, and nothing is known."""
    assert window(*events)[1] is merges


@pytest.mark.parametrize(("mode", "writes"), [("write", True), ("append", True), ("rename", True), ("read", False)])
def test_files_that_are_written_within_the_window_count(mode, writes):
    """Not those that are read, or written later."""
    assert window(touched("/job/a", mode, step=5))[2] is writes
    assert window(stepped(6), touched("/job/a", mode, step=6))[2] is False


def test_a_pass_that_was_never_seen_is_unknown():
    """Too many passes, or none."""
    assert EvaluationWindows().merges(0, begun()) is None
    assert EvaluationWindows().gathers(0, begun()) is False
    assert EvaluationWindows().writes(0, begun()) is False
