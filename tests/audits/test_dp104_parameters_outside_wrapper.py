"""Parameters of an optimizer that no wrapper has are an error where exactly they differ."""

from __future__ import annotations

import pytest

from paceline.audits.dp104_parameters_outside_wrapper import ParametersOutsideWrapper
from tests.audits.observed_events import (
    NAMES,
    collective,
    fingerprint,
    found,
    job,
    optimizer,
    states,
    step,
    unwrapped,
    without,
    wrapped,
)

STEPS = (1, 2, 3, 5)
LOSS = ("ArcFace/weight",)


def with_loss(rank, *, differ=LOSS, outside=LOSS, more=LOSS, **other):
    """A wrapped model, and a loss with a weight in the same optimizer."""
    yield wrapped()
    yield optimizer(parameters=4, outside=list(outside), **other)
    for number in STEPS:
        yield step(number)
        yield from states(rank, [number], differ, more=more)


def test_a_loss_with_weights_outside_the_wrapper_is_an_error():
    """The model agrees, the loss does not."""
    (finding,) = found(ParametersOutsideWrapper, job(with_loss))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F41"], 1, 22)
    assert finding.message.startswith("SGD trains parameters outside the DDP wrapper (ArcFace/weight): rank 1 holds")


def test_three_ranks_are_named():
    """Of three, two differ from rank 0."""
    (finding,) = found(ParametersOutsideWrapper, job(with_loss, world=3))

    assert "ranks 1 and 2" in finding.message


def test_a_second_network_with_an_optimizer_of_its_own_is_found():
    """A discriminator that was not wrapped; layers of the wrapped generator have the same names."""

    def events(rank):
        yield wrapped()
        yield optimizer(0)
        yield optimizer(1, kind="Adam", wrapped=0, outside=["Critic/fc1.weight"])
        yield from states(rank, STEPS, ["Critic/fc1.weight"])

    (finding,) = found(ParametersOutsideWrapper, job(events))

    assert finding.message.startswith("Adam trains parameters outside the DDP wrapper (Critic/fc1.weight)")


def test_parameters_without_a_module_are_found_by_their_difference():
    """A temperature that is a bare tensor."""
    (finding,) = found(ParametersOutsideWrapper, job(lambda rank: with_loss(rank, differ=["?/0"], outside=["?"])))

    assert "?/0" in finding.message


def test_outside_parameters_that_agree_are_fine():
    """The script reduces their gradients by hand."""
    assert found(ParametersOutsideWrapper, job(lambda rank: with_loss(rank, differ=()))) == []


def test_where_wrapped_parameters_differ_too_the_cause_is_another():
    """One finding per cause."""
    assert found(ParametersOutsideWrapper, job(lambda rank: with_loss(rank, differ=(*LOSS, NAMES[0])))) == []
    assert found(ParametersOutsideWrapper, job(lambda rank: with_loss(rank, differ=NAMES, more=()))) == []


def test_frozen_parameters_of_the_model_in_the_optimizer_are_fine():
    """DDP does not register them, and they get no gradient."""
    events = job(lambda rank: with_loss(rank, differ=(), outside=["backbone.weight"], without_gradient=1))

    assert found(ParametersOutsideWrapper, events) == []


def test_without_a_wrapped_model_it_is_another_fault():
    """All parameters are outside then."""

    def events(rank):
        yield optimizer(wrapped=0, outside=list(LOSS))
        yield from states(rank, STEPS, LOSS)

    assert found(ParametersOutsideWrapper, job(events)) == []


def unseen(**other):
    """Without fingerprints."""
    return [
        wrapped(),
        optimizer(parameters=4, outside=list(other.pop("outside", LOSS)), **other),
        *(step(number) for number in STEPS),
    ]


def test_without_fingerprints_it_is_a_warning():
    """Nothing shows that the gradients are reduced, other than DDP's own by DDP."""
    own, by_script = collective(on="gradients", by_backward=True), collective(on="gradients")

    (finding,) = found(ParametersOutsideWrapper, job(lambda rank: [*unseen(), own]))

    assert finding.severity == "warning"
    assert found(ParametersOutsideWrapper, job(lambda rank: [*unseen(), by_script])) == []


def test_fingerprints_that_lack_these_parameters_are_no_evidence():
    """A warning as well."""
    (finding,) = found(ParametersOutsideWrapper, job(lambda rank: with_loss(rank, differ=(), more=())))

    assert finding.severity == "warning"


@pytest.mark.parametrize(
    "events",
    [
        unseen(without_gradient=1),
        unseen(outside=["backbone.weight"]),
        [*unseen(), step(6, own_reductions=1)],
        [*unseen(), step(6, own_averages=1)],
        [fingerprint(0, 0, "start"), *unseen()],
        [wrapped(), optimizer(parameters=4, outside=list(LOSS))],
        [wrapped(), optimizer(), *map(unwrapped, STEPS)],
    ],
)
def test_without_fingerprints_any_other_explanation_is_enough_to_be_silent(events):
    """No gradient, frozen, reduced or averaged by hand, evidence still to come, no second step, nothing outside."""
    assert found(ParametersOutsideWrapper, job(lambda rank: events)) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """There is nothing to compare with."""
    assert found(ParametersOutsideWrapper, without(job(with_loss), 1)) == []
    assert found(ParametersOutsideWrapper, without(job(lambda rank: unseen()), 1)) == []
