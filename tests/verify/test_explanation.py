"""Numbers of a run tell faults of the gradient apart; an id is given only where they do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from paceline.records.parity import Divergence, ParityStep
from paceline.verify.divergence import Found
from paceline.verify.explanation import Explanation, Facts, Taken, explain, unsynchronized

ALONE = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, -1.0, 0.5, 1.0])]
MEAN = (ALONE[0] + ALONE[1]) / 2


def step(**changes: object) -> ParityStep:
    """A line of a rank or of one process."""
    return ParityStep(**{"step": 1, "optimizer": 0, "lr": [0.1], "backwards": 1, "norm": 1.0, **changes})  # type: ignore[arg-type]


def found(factor: float | None = None, *, gradients: bool = True) -> Found:
    """A parameter and, if asked for, a gradient that differ at step 1."""
    first = Divergence(
        step=1, what="state", tensor="parameter:w", relative=0.1, rank=0, against="one process", factor=None
    )
    other = Divergence(
        step=1, what="gradients", tensor="gradient:w", relative=0.5, rank=0, against="one process", factor=factor
    )
    return Found(first, other if gradients else None, {"parameter:w": 0.1}, 0.1)


def explained(
    one: np.ndarray,
    *,
    ranks: np.ndarray = MEAN,
    factor: float | None = None,
    losses: tuple[float, float] = (1.0, 1.0),
    theirs: Sequence[ParityStep] = (step(norm=2.0), step(norm=2.0)),
    ours: ParityStep | None = None,
    padded: bool = False,
    gathers: bool = False,
) -> Explanation:
    """Explain gradients of two ranks; losses are those of rank 0, and of its samples in one process."""
    facts = Facts(
        theirs=theirs,
        ours=ours or step(),
        ranks=Taken({"gradient:w": ranks}, losses[0]),
        one=Taken({"gradient:w": one}, None),
        alone=lambda rank: Taken({"gradient:w": ALONE[rank]}, losses[1]),
        padded=padded,
        gathers=gathers,
    )
    return explain(found(factor), facts, closure=False)


def test_a_mean_over_other_counts_is_f22_with_its_shares() -> None:
    """One process gives rank 0 a third of the weight, DDP a half."""
    why = explained(ALONE[0] / 3 + 2 * ALONE[1] / 3)

    assert why.faults == ("F22",)
    assert "shares of 0.333, 0.667" in why.text


def test_batches_of_unequal_size_are_f17() -> None:
    """The shares are those of the samples."""
    why = explained(0.6 * ALONE[0] + 0.4 * ALONE[1], theirs=[step(norm=2.0, samples=12), step(norm=2.0, samples=8)])

    assert why.faults == ("F17", "F22")
    assert "12, 8 samples" in why.text


def test_a_loss_that_does_not_fall_apart_into_ranks_is_f31() -> None:
    """Its gradient is no sum of those of ranks."""
    assert explained(np.array([5.0, 0.0, -1.0, 2.0])).faults == ("F31",)


@pytest.mark.parametrize(("gathers", "faults"), [(True, ("F34", "F31")), (False, ())])
def test_ranks_without_the_mean_of_their_gradients_are_f34_where_they_gather(gathers: bool, faults: tuple) -> None:
    """Without a gather there is no evidence for an id."""
    assert explained(MEAN, ranks=np.array([0.0, 1.0, 0.0, 1.0]), gathers=gathers).faults == faults


def test_padding_that_changes_the_loss_is_no_fault() -> None:
    """A mean over padded rows depends on the longest of them."""
    why = explained(MEAN, ranks=np.array([0.0, 1.0, 0.0, 1.0]), padded=True)

    assert why.nature
    assert why.faults == ()


@pytest.mark.parametrize(
    ("factor", "losses", "faults"),
    [
        (0.5, (3.0, 3.0), ("F23",)),
        (0.5, (1.5, 3.0), ("F24",)),
        (2.0, (6.0, 3.0), ("F24",)),
        (0.5, (7.0, 3.0), ()),
        (0.7, (3.0, 3.0), ()),
    ],
    ids=["a sum", "divided by the world size", "times the world size", "another loss", "no simple factor"],
)
def test_the_loss_of_the_same_samples_tells_a_sum_from_a_scale(
    factor: float, losses: tuple[float, float], faults: tuple[str, ...]
) -> None:
    """A scale by the world size is another one in one process, a sum is not."""
    assert explained(MEAN, factor=factor, losses=losses).faults == faults


def test_gradients_that_were_right_after_the_backward_pass_are_f129() -> None:
    """So the script changed them by hand."""
    assert explained(MEAN, factor=2.0, theirs=[step(), step()]).faults == ("F129",)


def test_a_divisor_that_did_not_follow_the_number_of_micro_batches_is_f27() -> None:
    """One process takes twice as many."""
    assert explained(MEAN, factor=0.5, ours=step(backwards=2)).faults == ("F27",)


def test_gradients_clipped_too_early_are_f30() -> None:
    """Before the last backward pass of a step."""
    assert explained(MEAN * 1.5, theirs=[step(early_clips=1), step(early_clips=1)]).faults == ("F30",)


@pytest.mark.parametrize(("closure", "faults"), [(True, ("F36",)), (False, ())])
def test_f36_takes_an_optimizer_that_evaluates_the_loss(closure: bool, faults: tuple[str, ...]) -> None:
    """Equal gradients with other parameters say nothing by themselves."""
    assert explain(found(gradients=False), None, closure=closure).faults == faults
    apart = found().first
    assert apart is not None
    assert unsynchronized(apart, closure=closure).faults == faults
