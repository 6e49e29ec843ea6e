"""Ranks that unscale one gradient with different factors are an error."""

from __future__ import annotations

from paceline.audits.dp133_loss_scale_differs import LossScaleDiffers
from tests.audits.observed_events import found, job, step, without


def scaling(rank, *, odd=1, since=2):
    """Rank 1's scale is another one from a step on."""
    return [step(n, loss_scale=512.0 if rank == odd and n >= since else 1024.0) for n in (1, 2, 3)]


def test_scales_that_differ_are_an_error_at_the_first_such_step():
    """Named with both values."""
    (finding,) = found(LossScaleDiffers, job(scaling))

    assert (finding.severity, finding.faults, finding.rank, finding.step) == ("error", ["F35"], 1, 2)
    assert "1024 on rank 0 and 512 on rank 1" in finding.message


def test_of_three_ranks_the_one_that_differs_is_named():
    """Rank 2."""
    (finding,) = found(LossScaleDiffers, job(lambda rank: scaling(rank, odd=2), world=3))

    assert finding.rank == 2


def test_equal_scales_and_none_at_all_are_fine():
    """Most scripts have no GradScaler."""
    assert found(LossScaleDiffers, job(lambda rank: scaling(rank, odd=9))) == []
    assert found(LossScaleDiffers, job(lambda rank: [step(1), step(2)])) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """There is nothing to compare with."""
    assert found(LossScaleDiffers, without(job(scaling), 1)) == []
