"""A process group without a wrapped model is an error where the ranks part."""

from __future__ import annotations

import pytest

from paceline.audits.dp103_never_wrapped import NeverWrapped
from tests.audits.observed_events import (
    NAMES,
    begun,
    collective,
    fingerprint,
    found,
    group,
    job,
    started,
    states,
    unwrapped,
    without,
    wrapped,
)

STEPS = (1, 2, 3, 5)
SHARDED = {"num_replicas": 2, "rank": 0}
NET = tuple(f"Net/{name}" for name in NAMES)


def alone(rank, *, start=(), gradients=NAMES, differ=NAMES, **other):
    """A loop without wrapper."""
    yield fingerprint(rank, 0, "start", start)
    for number in STEPS:
        yield unwrapped(number, **other)
        yield fingerprint(rank, number, "gradients", gradients, kind="gradient")
        yield from states(rank, [number], differ)


def test_ranks_that_train_without_a_wrapper_are_an_error():
    """Each trains a model of its own."""
    (finding,) = found(NeverWrapped, job(alone))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F39"], 1, 22)
    assert "each of 2 ranks trains its own model" in finding.message
    assert "DDP(model)" in finding.advice


def test_three_ranks_give_one_finding():
    """The cause is one."""
    (finding,) = found(NeverWrapped, job(alone, world=3))

    assert "ranks 1 and 2 hold different values" in finding.message


def test_gradients_reduced_by_hand_need_equal_parameters_to_begin_with():
    """As with different seeds and no broadcast."""
    (finding,) = found(NeverWrapped, job(lambda rank: alone(rank, start=NAMES, gradients=(), own_reductions=3)))

    assert "before the first step" in finding.message
    assert finding.advice.startswith("broadcast the parameters")


def test_gradients_reduced_by_hand_on_equal_parameters_are_right():
    """All ranks agree."""
    assert found(NeverWrapped, job(lambda rank: alone(rank, gradients=(), differ=(), own_reductions=3))) == []


def test_gradients_reduced_as_one_flat_tensor_are_right_as_well():
    """The collective is not on the gradients themselves, but the ranks agree."""
    assert found(NeverWrapped, job(lambda rank: alone(rank, gradients=(), differ=(), reductions=1))) == []


def test_local_sgd_by_hand_is_left_alone():
    """Parameters are averaged between steps."""
    assert found(NeverWrapped, job(lambda rank: alone(rank, own_averages=1))) == []


def test_a_wrapped_model_is_another_audits_matter():
    """Whatever differs."""
    assert found(NeverWrapped, job(lambda rank: [wrapped(), *alone(rank)])) == []


def test_ranks_that_read_the_same_data_may_be_independent_models_on_purpose():
    """An ensemble: probable, not certain."""
    (finding,) = found(NeverWrapped, job(lambda rank: [begun(sampler_facts={"num_replicas": 1}), *alone(rank)]))

    assert finding.severity == "warning"


def test_gradients_that_agree_show_that_one_model_is_meant():
    """Whatever data the ranks read."""
    (finding,) = found(NeverWrapped, job(lambda rank: [begun(), *alone(rank, start=NAMES, gradients=())]))

    assert finding.severity == "error"


@pytest.mark.parametrize("data", [{"sampler_facts": SHARDED}, {"subset": "of each rank"}])
def test_ranks_that_read_parts_of_the_data_are_meant_to_train_one_model(data):
    """By a DistributedSampler, or subsets of their own."""

    def events(rank):
        yield begun(**({"subset": f"{rank}"} if "subset" in data else data))
        yield from alone(rank)

    (finding,) = found(NeverWrapped, job(events))

    assert finding.severity == "error"


def test_without_a_process_group_of_all_ranks_it_is_another_fault():
    """Each process a world of its own."""
    apart = {rank: [started(rank), group(0, 1), *alone(rank)] for rank in range(2)}
    half = {rank: [started(rank), *[group(0)] * (rank == 0), *alone(rank)] for rank in range(2)}

    assert found(NeverWrapped, apart) == []
    assert found(NeverWrapped, half) == []


@pytest.mark.parametrize(
    "more", [unwrapped(2), collective(bytes=100_000, step=0), collective(bytes=4, step=1), unwrapped(1, reductions=9)]
)
def test_without_fingerprints_steps_without_a_reduction_are_a_warning(more):
    """Two steps are enough; the loss, and what came before the first step, are no reduction of gradients."""
    (finding,) = found(NeverWrapped, job(lambda rank: [more, unwrapped(1), unwrapped(2)]))

    assert finding.severity == "warning"


@pytest.mark.parametrize(
    "events",
    [
        [unwrapped(1, own_reductions=3), unwrapped(2, own_reductions=3)],
        [unwrapped(1, reductions=1), unwrapped(2, reductions=1)],
        [unwrapped(1, reductions=None), collective(bytes=100_000, step=1), unwrapped(2, reductions=None)],
        [unwrapped(1), collective(bytes=100_000, by_backward=True), unwrapped(2)],
        [unwrapped(1), unwrapped(2, own_averages=1)],
        [unwrapped(1)],
    ],
)
def test_without_fingerprints_any_collective_in_a_step_is_enough_to_be_silent(events):
    """It may be the gradients'."""
    assert found(NeverWrapped, job(lambda rank: events)) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """Nor one that was killed before its first step."""
    assert found(NeverWrapped, without(job(alone), 1)) == []
    assert found(NeverWrapped, job(lambda rank: alone(rank) if rank == 0 else [])) == []


def test_unwrapped_models_are_named_with_their_class():
    """As fingerprints name them; without gradients to compare, none are said to be reduced."""
    (finding,) = found(NeverWrapped, job(lambda rank: [*states(rank, STEPS, NET), unwrapped(1)]))

    assert finding.message.startswith("no model is wrapped in DDP")
    assert "Net/fc1.weight" in finding.message
