"""What counts between an evaluation and the next training step."""

from __future__ import annotations

import pytest

from paceline.audits.evaluation_windows import EvaluationWindows
from tests.audits.loader_events import begun, called, done, read, seen, sharded, stepped, touched
from tests.audits.observed_events import fingerprint

STATE = fingerprint(0, 5, "evaluation", ["bn.running_mean"], kind="buffer")


def evaluations(*events):
    """Windows of fingerprinted evaluations, and how many came before them at their step."""
    windows = EvaluationWindows()
    for event in events:
        windows.feed(0, event, 2)
    return [(key[1:], ranks[0]) for key, ranks in windows.evaluations.items()]


def test_an_evaluation_keeps_its_step_and_its_buffers():
    """In whichever order the pass and its fingerprint begin; two after one step are two."""
    start, end = read(None, training=False, step=5)

    assert [(key, each.buffers) for key, each in evaluations(start, STATE, end, STATE, start, end)] == [
        ((5, 0), STATE.digests),
        ((5, 1), STATE.digests),
    ]


@pytest.mark.parametrize(
    "events",
    [
        read(None, training=False),
        [STATE, *read(None)],
        [STATE, *read([], training=False)],
        [STATE, stepped(6), *read(None, training=False)],
    ],
    ids=["no fingerprint", "a training pass", "empty", "a step between"],
)
def test_other_passes_are_no_evaluations(events):
    """Nor is a pass that was trained on."""
    assert evaluations(*events) == []


@pytest.mark.parametrize(
    ("after", "reduced"),
    [
        ([called("all_reduce", 4)], True),
        ([called("all_gather", 4)], True),
        ([called("barrier", 0)], False),
        ([called("all_reduce", 4, by_backward=True)], False),
        ([stepped(6), called("all_reduce", 4)], False),
    ],
)
def test_a_collective_of_the_script_before_the_next_step_makes_one_metric(after, reduced):
    """A barrier carries nothing, and DDP's own is no metric."""
    ((_, each),) = evaluations(STATE, *read(None, training=False, step=5), *after)

    assert each.reduced is reduced


def window(*after, during=()):
    """Gathers, merges, writes: of an evaluation of 12 samples in batches of 4 after step 5."""
    windows = EvaluationWindows()
    events = read(sharded(0, 2, None), training=False, step=5)
    for event in [events[0], *during, *events[1:], *after]:
        windows.feed(0, event, 2)
    first = events[0]
    found = windows.get(0, first)
    return found.gathered, found.merges, found.wrote


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
    assert EvaluationWindows().get(0, begun()).merges is None
    assert EvaluationWindows().get(0, begun()).wrote is False
