"""An optimizer without gradients, while the model's have no optimizer, trains nothing."""

from __future__ import annotations

from paceline.audits.dp110_optimizer_without_model import OptimizerWithoutModel
from tests.audits.observed_events import NAMES, found, job, optimizer, step, without


def stale(**other):
    """It holds three parameters that the model no longer has."""
    fields = {"wrapped": 0, "outside": ["?"], "without_gradient": 3, "wrapped_with_gradient_elsewhere": list(NAMES)}
    return optimizer(**(fields | other))


def test_an_optimizer_of_replaced_parameters_is_an_error():
    """One finding for all ranks."""
    (finding,) = found(OptimizerWithoutModel, job(lambda rank: [stale(), step(1), step(2)], world=3))

    assert (finding.severity, finding.faults, finding.line) == ("error", ["F42"], 22)
    assert finding.message.startswith("ranks 0, 1 and 2: none of the 3 parameters of SGD gets a gradient")
    assert "fc1.weight and 2 more" in finding.message


def test_the_models_gradients_may_be_seen_at_a_later_event():
    """The parameters of the optimizer changed in between."""
    events = [stale(wrapped_with_gradient_elsewhere=[]), step(1), stale(step=1), step(2)]

    assert len(found(OptimizerWithoutModel, job(lambda rank: events))) == 1


def test_an_optimizer_whose_parameters_get_gradients_is_fine():
    """Some may be frozen."""
    assert found(OptimizerWithoutModel, job(lambda rank: [optimizer(without_gradient=2), step(1), step(2)])) == []


def test_a_step_before_any_backward_pass_is_fine():
    """Made so that a scheduler does not complain."""
    events = [stale(wrapped_with_gradient_elsewhere=[]), step(1, backwards=0), step(2)]

    assert found(OptimizerWithoutModel, job(lambda rank: events)) == []


def test_a_second_optimizer_that_takes_the_gradients_is_fine():
    """The first holds what is frozen in this phase."""
    events = [stale(), step(1), optimizer(1), step(2, optimizer=1)]

    assert found(OptimizerWithoutModel, job(lambda rank: events)) == []


def test_gradients_that_come_later_are_fine():
    """The norm at a step shows them."""
    assert found(OptimizerWithoutModel, job(lambda rank: [stale(), step(1), step(2, norm_at_step=0.5)])) == []


def test_the_first_step_alone_is_too_early():
    """Another optimizer may step next."""
    assert found(OptimizerWithoutModel, job(lambda rank: [stale(), step(1)])) == []


def test_a_rank_that_wrote_nothing_does_not_hide_it():
    """The evidence of one rank is complete."""
    (finding,) = found(OptimizerWithoutModel, without(job(lambda rank: [stale(), step(1), step(2)]), 0))

    assert finding.message.startswith("rank 1: ")
