"""The first NaN or infinity of any rank is a warning, except what a GradScaler makes on purpose."""

from __future__ import annotations

import pytest

from paceline.audits.dp134_non_finite import NonFiniteValues
from paceline.records.observed_rank import NonFinite
from tests.audits.observed_events import at, found, job, step, without


def bad(number, what="loss", value="nan"):
    """What a rank saw first."""
    return NonFinite(what=what, step=number, value=value, place=at(21))


def test_the_rank_whose_loss_was_first_is_named():
    """The others have it one step later, through the gradients."""
    events = job(lambda rank: [step(1), bad(7) if rank == 1 else bad(8), step(8)], world=3)

    (finding,) = found(NonFiniteValues, events)

    assert (finding.severity, finding.faults, finding.rank, finding.step, finding.line) == (
        "warning",
        ["F83"],
        1,
        7,
        21,
    )
    assert finding.message.startswith("rank 1: a loss with the value nan at step 7 (1 of 3 ranks)")


def test_a_loss_comes_before_the_gradients_of_its_step():
    """Both ranks have bad gradients, one has a bad loss."""
    (finding,) = found(NonFiniteValues, job(lambda rank: [bad(7, "gradient"), *[bad(7)] * (rank == 1)]))

    assert finding.evidence["what"] == "loss"
    assert finding.rank == 1


def test_ranks_with_the_same_step_are_named_together():
    """All of them."""
    (finding,) = found(NonFiniteValues, job(lambda rank: [bad(3)]))

    assert finding.message.startswith("ranks 0 and 1: a loss with the value nan at step 3 (2 of 2 ranks)")


@pytest.mark.parametrize(
    ("event", "severity"),
    [
        (bad(1, "gradient", "inf"), "info"),
        (bad(1, "gradient", "nan"), "info"),
        (bad(1, "loss", "inf"), "info"),
        (bad(1, "loss", "nan"), "warning"),
    ],
)
def test_overflow_under_a_grad_scaler_is_only_mentioned(event, severity):
    """It skips the step and lowers its scale; a loss that is no number has another cause."""
    (finding,) = found(NonFiniteValues, job(lambda rank: [event, step(2, loss_scale=32768.0)]))

    assert finding.severity == severity


def test_gradients_without_a_loss_scale_are_a_warning():
    """Nothing makes them on purpose."""
    (finding,) = found(NonFiniteValues, job(lambda rank: [bad(1, "gradient", "inf"), step(2, loss_scale=1.0)]))

    assert finding.severity == "warning"


def test_finite_values_are_fine():
    """Nothing to report."""
    assert found(NonFiniteValues, job(lambda rank: [step(1), step(2)])) == []


def test_a_rank_that_wrote_nothing_does_not_hide_it():
    """The evidence of one rank is complete."""
    assert len(found(NonFiniteValues, without(job(lambda rank: [bad(3)]), 0))) == 1
