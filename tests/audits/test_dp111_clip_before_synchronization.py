"""Clipping belongs between the last backward pass and the step, on gradients without a loss scale."""

from __future__ import annotations

import pytest

from paceline.audits.dp111_clip_before_synchronization import ClipBeforeSynchronization
from tests.audits.observed_events import at, found, job, step, without

NO_SYNC = {"forwards": 2, "backwards": 2, "synchronized": [False, True]}


def clipping(count=2, **other):
    """Steps that clip."""
    fields = {"clips": 1, "clip_place": at(23)}
    return [step(number, **(fields | other)) for number in range(1, count + 1)]


def test_clipping_inside_the_accumulation_window_is_an_error():
    """Of three ranks, one finding."""
    (finding,) = found(
        ClipBeforeSynchronization,
        job(lambda rank: clipping(clips=2, clips_before_backward=1, **NO_SYNC), world=3),
    )

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F30"], 1, 23)
    assert "ranks 0, 1 and 2: step 1 clips gradients before the last of 2 backward passes" in finding.message


def test_clipping_before_the_only_backward_pass_is_an_error():
    """It clips nothing."""
    (finding,) = found(ClipBeforeSynchronization, job(lambda rank: clipping(clips_before_backward=1)))

    assert finding.severity == "error"
    assert "before its backward pass" in finding.message


@pytest.mark.parametrize(
    "pattern", [{"forwards": 2, "backwards": 2}, {"forwards": 1, "backwards": 3, "synchronized": [True]}]
)
def test_patterns_that_may_be_meant_are_a_warning(pattern):
    """Two passes as SAM's; the gradients of several tasks."""
    (finding,) = found(ClipBeforeSynchronization, job(lambda rank: clipping(clips_before_backward=1, **pattern)))

    assert finding.severity == "warning"


def test_clipping_scaled_gradients_is_an_error():
    """The threshold is 1024 times too small."""
    (finding,) = found(ClipBeforeSynchronization, job(lambda rank: clipping(clips_while_scaled=1, loss_scale=1024.0)))

    assert "scaler.unscale_" in finding.advice
    assert "1024" in finding.message


def test_a_scale_of_one_changes_nothing():
    """A GradScaler that is switched off."""
    assert found(ClipBeforeSynchronization, job(lambda rank: clipping(clips_while_scaled=1, loss_scale=1.0))) == []


def test_clipping_right_before_the_step_is_fine():
    """Also with accumulation, and after scaler.unscale_."""
    assert found(ClipBeforeSynchronization, job(lambda rank: clipping())) == []
    assert found(ClipBeforeSynchronization, job(lambda rank: clipping(**NO_SYNC))) == []
    assert found(ClipBeforeSynchronization, job(lambda rank: clipping(loss_scale=1024.0))) == []


def test_one_step_is_no_pattern():
    """Two are asked for."""
    events = job(lambda rank: clipping(1, clips_before_backward=1, clips_while_scaled=1, loss_scale=2.0))

    assert found(ClipBeforeSynchronization, events) == []


def test_scripts_with_several_optimizers_are_not_judged():
    """A discriminator is clipped before the generator's backward pass."""
    events = job(lambda rank: [*clipping(clips_before_backward=1), step(1, optimizer=1)])

    assert found(ClipBeforeSynchronization, events) == []


def test_a_rank_that_wrote_nothing_does_not_hide_it():
    """The evidence of one rank is complete."""
    assert len(found(ClipBeforeSynchronization, without(job(lambda rank: clipping(clips_before_backward=1)), 0))) == 1
