"""Random states that are equal on ranks, used, and matter."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paceline.audits.dp130_same_random_state import SameRandomState
from tests.audits.loader_events import begun, drawn, judged

DROPOUT = {"dropout": 2}


@pytest.mark.parametrize("world", [2, 3])
def test_equal_states_with_dropout_give_equal_masks(world):
    """Seeded with the same number on all ranks."""
    ranks = [[drawn(step, torch=f"state {step}") for step in (1, 2, 3)] for _ in range(world)]

    (found,) = judged(SameRandomState, ranks, layers=DROPOUT)

    assert (found.severity, found.faults) == ("info", ["F64"])
    assert "dropout masks are the same (2 layers)" in found.message
    assert found.evidence["steps"] == [1, 2, 3]


def test_generators_of_numpy_and_python_are_named():
    """Augmentations draw from them."""
    ranks = [[drawn(step, numpy=f"n{step}", python=f"p{step}", torch=f"t{step}") for step in (1, 2)] for _ in range(2)]

    (found,) = judged(SameRandomState, ranks)
    (both,) = judged(SameRandomState, ranks, layers=DROPOUT)

    assert found.faults == ["F66"]
    assert found.evidence["generators"] == ["numpy", "python"]
    assert both.faults == ["F64", "F66"]


def test_a_seed_for_each_machine_is_told_apart():
    """Ranks 0 and 1 on one, ranks 2 and 3 on another."""
    ranks = [[drawn(step, torch=f"{host} {step}") for step in (1, 2)] for host in ("a", "a", "b", "b")]

    (found,) = judged(SameRandomState, ranks, layers=DROPOUT, hosts=["a", "a", "b", "b"])

    assert (found.severity, found.faults) == ("info", ["F67"])


def test_one_rank_a_machine_cannot_be_told_from_a_seed_for_each_rank():
    """It is right then."""
    ranks = [[drawn(step, torch=f"{host} {step}") for step in (1, 2)] for host in "ab"]

    assert judged(SameRandomState, ranks, layers=DROPOUT, hosts=["a", "b"]) == []


def test_states_of_their_own_are_right():
    """seed + rank."""
    ranks = [[drawn(step, torch=f"{rank} {step}") for step in (1, 2)] for rank in range(2)]

    assert judged(SameRandomState, ranks, layers=DROPOUT) == []


def test_equal_states_do_not_matter_without_dropout():
    """Nothing of the model draws from them."""
    assert judged(SameRandomState, [[drawn(step, torch=f"s{step}") for step in (1, 2)] for _ in range(2)]) == []


def test_equal_states_that_change_within_a_pass_give_equal_noise():
    """The training loop draws timesteps or noise from them."""
    ranks = [[begun(step=0), *(drawn(step, torch=f"s{step}") for step in (1, 2))] for _ in range(2)]

    (found,) = judged(SameRandomState, ranks)

    assert (found.severity, found.faults) == ("info", ["F64"])
    assert "training steps draw from it" in found.message


@pytest.mark.parametrize("step", [1, 2])
def test_a_state_that_changes_between_passes_was_changed_by_the_loader(step):
    """Each pass draws a seed for its workers and its order."""
    ranks = [[begun(step=0), drawn(1, torch="a"), begun(step=step), drawn(2, torch="b")] for _ in range(2)]

    assert judged(SameRandomState, ranks) == []


def test_a_generator_that_is_not_used_does_not_matter():
    """Its state never changes."""
    assert judged(SameRandomState, [[drawn(step, numpy="seeded") for step in (1, 2, 3)] for _ in range(2)]) == []


def test_one_instant_proves_nothing():
    """Ranks may begin alike."""
    assert judged(SameRandomState, [[drawn(1, torch="s")] for _ in range(2)], layers=DROPOUT) == []


def test_tensor_parallel_ranks_need_equal_states():
    """The wrapper's group is smaller than the job."""
    ranks = [[drawn(step, torch=f"s{step}") for step in (1, 2)] for _ in range(4)]

    assert judged(SameRandomState, ranks, layers=DROPOUT, group=2) == []


def test_states_at_other_moments_are_not_compared():
    """Before the first step all ranks may have the same state."""
    ranks = [[replace(drawn(step, torch=f"s{step}"), moment="start") for step in (1, 2)] for _ in range(2)]

    assert judged(SameRandomState, ranks, layers=DROPOUT) == []


def test_machines_that_do_not_agree_in_themselves_are_right():
    """Ranks of the second machine differ from each other."""
    ranks = [[drawn(step, torch=f"{state} {step}") for step in (1, 2)] for state in ("a", "a", "b", "c")]

    assert judged(SameRandomState, ranks, layers=DROPOUT, hosts=["a", "a", "b", "b"]) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing."""
    ranks = [[drawn(step, torch=f"s{step}") for step in (1, 2)] for _ in range(2)]

    assert judged(SameRandomState, [*ranks, []], layers=DROPOUT) == []
