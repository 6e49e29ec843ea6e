"""An evaluation is a pass without backward passes, between two steps, whose state was fingerprinted."""

from __future__ import annotations

import pytest

from paceline.audits.evaluations import Evaluations
from tests.audits.observed_events import begun, collective, fingerprint, loader_ended, step


def seen(*events):
    """What rank 0 did."""
    evaluations = Evaluations()
    for event in events:
        evaluations.feed(0, event)
    return [(key[1:], ranks[0]) for key, ranks in evaluations.by_step.items()]


STATE = fingerprint(0, 3, "evaluation")


def test_an_evaluation_keeps_its_step_state_and_line():
    """In whichever order the pass and its fingerprint begin."""
    facts = begun(sampler_facts={"num_replicas": 2})

    for events in ([facts, STATE], [STATE, facts]):
        ((key, each),) = seen(*events, loader_ended(wrapped_forwards=4, order="o"))
        assert key == (3, 0)
        assert (each.digests, each.wrapped_forwards, each.order) == (STATE.digests, 4, "o")
        assert (each.sharded, each.place.line, each.reduced) == (True, 30, False)


def test_two_evaluations_after_one_step_are_counted():
    """Of two loaders."""
    found = seen(begun(), STATE, loader_ended(), begun(2), STATE, loader_ended(2))

    assert [key for key, _ in found] == [(3, 0), (3, 1)]


@pytest.mark.parametrize(
    "events",
    [
        [begun(), loader_ended()],
        [begun(), STATE, loader_ended(backwards=5)],
        [begun(), STATE, loader_ended(batches=0)],
        [begun(), STATE, step(4), loader_ended()],
    ],
    ids=["no fingerprint", "a training pass", "empty", "steps within"],
)
def test_other_passes_are_no_evaluations(events):
    """Nor is a pass that was trained on."""
    assert seen(*events) == []


def test_facts_of_another_loader_do_not_count():
    """A training pass that goes on around the evaluation."""
    ((_, each),) = seen(begun(1, sampler_facts={"num_replicas": 2}), STATE, loader_ended(2))

    assert (each.sharded, each.place) == (False, None)


@pytest.mark.parametrize(
    ("after", "reduced"),
    [
        ([collective()], True),
        ([collective("all_gather")], True),
        ([collective("barrier")], False),
        ([collective(by_backward=True)], False),
        ([step(4), collective()], False),
    ],
)
def test_a_collective_of_the_script_before_the_next_step_makes_one_metric(after, reduced):
    """A barrier carries nothing, and DDP's own is no metric."""
    ((_, each),) = seen(begun(), STATE, loader_ended(), *after)

    assert each.reduced is reduced


def test_a_sampler_of_one_replica_gives_all_data():
    """Every rank evaluates everything."""
    ((_, each),) = seen(begun(sampler_facts={"num_replicas": 1}), STATE, loader_ended())

    assert not each.sharded
