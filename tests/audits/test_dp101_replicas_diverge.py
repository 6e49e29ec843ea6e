"""Parameters that differ between ranks are an error; averaging, sharding and what follows the last step are none."""

from __future__ import annotations

import pytest

from paceline.audits.dp101_replicas_diverge import ReplicasDiverge
from paceline.records.observed_rank import StateRestored
from tests.audits.observed_events import (
    NAMES,
    collective,
    ended,
    fingerprint,
    found,
    job,
    started,
    states,
    step,
    unwrapped,
    without,
    wrapped,
)

STEPS = (1, 2, 3, 5, 8)


def diverging(rank, *, since=1, differ=NAMES[:2]):
    """Gradients and parameters that differ from a step on."""
    yield wrapped()
    for number in STEPS:
        gradients = differ if number >= since else ()
        yield step(number)
        yield fingerprint(rank, number, "gradients", gradients, kind="gradient")
        yield from states(rank, [number], differ, since=since)


def test_the_first_difference_names_step_tensors_ranks_and_the_gradients_behind_it():
    """One finding, not one per step."""
    (finding,) = found(ReplicasDiverge, job(diverging))

    assert (finding.severity, finding.rank, finding.step, finding.faults) == ("error", 1, 1, [])
    assert finding.message.startswith(
        "rank 1 holds different values of fc1.weight and 1 more after step 1, because the gradients of step 1 differ "
        "(2 of 3 parameters)"
    )
    assert (finding.path, finding.line) == ("train.py", 22)


def test_a_late_difference_names_its_own_step():
    """Steps before it agreed."""
    (finding,) = found(ReplicasDiverge, job(lambda rank: diverging(rank, since=5)))

    assert finding.step == 5


def test_of_three_ranks_those_that_differ_from_the_lowest_are_named():
    """Both of the others."""
    (finding,) = found(ReplicasDiverge, job(diverging, world=3))

    assert "ranks 1 and 2 hold different values" in finding.message


def test_parameters_that_differ_before_the_first_step_are_no_matter_of_gradients():
    """DDP would have broadcast them."""
    (finding,) = found(
        ReplicasDiverge, job(lambda rank: [fingerprint(rank, 0, "start", NAMES), *states(rank, (1, 2), NAMES)])
    )

    assert "before the first step" in finding.message
    assert "broadcast" in finding.advice


def test_parameters_that_differ_with_equal_gradients_are_changed_by_something_else():
    """Loading, noise, or settings of the optimizer."""

    def events(rank):
        yield fingerprint(rank, 1, "gradients", kind="gradient")
        yield from states(rank, (1, 2), NAMES)
        yield fingerprint(rank, 5, "gradients", NAMES, kind="gradient")

    (finding,) = found(ReplicasDiverge, job(events))

    assert "gradients of step" not in finding.message
    assert "besides the gradients" in finding.advice


def test_replicas_that_agree_are_no_finding():
    """Nor are buffers that differ by nature."""

    def events(rank):
        yield from states(rank, STEPS)
        yield fingerprint(rank, 9, "state", ["bn.running_mean"], kind="buffer")

    assert found(ReplicasDiverge, job(events)) == []


def test_gradients_that_differ_while_parameters_agree_are_reduced_within_the_step():
    """As ZeroRedundancyOptimizer and other distributed optimizers do it."""

    def events(rank):
        for number in STEPS:
            yield fingerprint(rank, number, "gradients", NAMES, kind="gradient")
            yield from states(rank, [number])

    assert found(ReplicasDiverge, job(events)) == []


def test_gradients_alone_are_evidence_where_states_were_never_compared():
    """At two steps, so that it is no accident of the instant."""
    (finding,) = found(
        ReplicasDiverge,
        job(lambda rank: [fingerprint(rank, number, "gradients", NAMES, kind="gradient") for number in (1, 2)]),
    )

    assert finding.message.startswith("the gradients of step 1 differ between ranks")


def test_parameters_that_are_equal_again_at_two_later_instants_are_averaged_now_and_then():
    """Averaging within a library is not seen, but its effect is."""

    def events(rank):
        for number in STEPS:
            yield from states(rank, [number], () if number in (3, 8) else NAMES)

    assert found(ReplicasDiverge, job(events)) == []


@pytest.mark.parametrize("averaging", [step(4, own_averages=1), collective(on="parameters", step=4)])
def test_local_sgd_that_averages_parameters_itself_is_left_alone(averaging):
    """Also where no fingerprint falls on an averaging step."""
    assert found(ReplicasDiverge, job(lambda rank: [*states(rank, STEPS, NAMES), averaging])) == []


def test_local_sgd_without_a_last_averaging_is_mentioned():
    """What rank 0 saves lacks the others' last steps."""

    def events(rank):
        yield from states(rank, STEPS, NAMES)
        yield step(8, own_averages=1)
        yield fingerprint(rank, 10, "end", NAMES)

    (finding,) = found(ReplicasDiverge, job(events))

    assert finding.severity == "info"


@pytest.mark.parametrize(
    "once",
    [
        step(1, own_averages=3),
        collective(op="broadcast", on="parameters", step=3),
        collective(op="all_gather", on="parameters", step=3),
        collective(on="parameters"),
        collective(on="other", step=3),
    ],
)
def test_a_broadcast_before_the_first_step_is_no_averaging(once):
    """Nor is a comparison; replicas that start equal must also stay equal."""
    assert len(found(ReplicasDiverge, job(lambda rank: [once, *states(rank, STEPS, NAMES)]))) == 1


def test_a_hook_that_does_not_average_over_all_ranks_was_chosen_on_purpose():
    """torch's own post-local SGD."""
    model = wrapped(options={"comm_hook": "post_localSGD_hook"})

    assert found(ReplicasDiverge, job(lambda rank: [model, *states(rank, STEPS, NAMES)])) == []


def test_sharded_parameters_are_not_compared():
    """FSDP keeps another part on each rank."""
    model = wrapped(wrapper="FullyShardedDataParallel")

    assert found(ReplicasDiverge, job(lambda rank: [model, *states(rank, STEPS, NAMES)])) == []
    beside = found(ReplicasDiverge, job(lambda rank: [model, *states(rank, STEPS, ["Loss/weight", *NAMES])]))
    assert "rank 1 holds different values of Loss/weight after step 1" in beside[0].message


def test_models_of_smaller_groups_are_not_compared():
    """Two groups of two ranks may hold two stages of a pipeline."""
    assert found(ReplicasDiverge, job(lambda rank: [wrapped(size=2), *states(rank, STEPS, NAMES)], world=4)) == []


def test_ranks_with_parameters_of_other_names_are_no_replicas():
    """Stages of a pipeline."""
    events = job(lambda rank: [fingerprint(rank, 1, "state", [f"stage{rank}.weight"])])

    assert found(ReplicasDiverge, events) == []


def test_a_model_that_only_rank_0_has_does_not_hide_a_difference():
    """An average of the weights that rank 0 keeps, beside a model that diverges."""
    more = ["Average/fc1.weight"]

    def events(rank):
        yield from states(rank, STEPS, NAMES, more=more if rank == 0 else ())

    (finding,) = found(ReplicasDiverge, job(events))

    assert "(3 of 3 parameters)" in finding.message


def test_a_model_that_rank_0_changes_after_the_last_step_is_left_alone():
    """The best checkpoint for the final test, or averaged weights."""
    restored = StateRestored(what="model", name="Net", step=9, after_wrap=True)

    def events(rank):
        yield from states(rank, STEPS)
        yield from [restored] if rank == 0 else []
        yield fingerprint(rank, 9, "end", NAMES)

    assert found(ReplicasDiverge, job(events)) == []


def test_weights_that_differ_only_at_the_end_right_after_equal_ones_are_left_alone():
    """No step lies between."""
    assert found(ReplicasDiverge, job(lambda rank: [*states(rank, STEPS), fingerprint(rank, 8, "end", NAMES)])) == []


def test_a_difference_that_only_the_end_shows_is_mentioned():
    """Steps that were not compared lie between; rank 0 may have loaded averaged weights."""
    optimizer = StateRestored(what="optimizer", name="SGD", step=12, after_wrap=False)
    events = job(lambda rank: [*states(rank, STEPS), optimizer, fingerprint(rank, 12, "end", NAMES)])

    (finding,) = found(ReplicasDiverge, events)

    assert finding.severity == "info"
    assert "agreed after step 8" in finding.message


def test_weights_swapped_for_an_evaluation_are_left_alone():
    """Rank 0 evaluates averaged weights."""
    events = job(lambda rank: [*states(rank, STEPS), fingerprint(rank, 8, "evaluation", NAMES)])

    assert found(ReplicasDiverge, events) == []


def test_each_start_of_a_restarted_job_is_compared_by_itself():
    """The killed attempt of rank 1 lacks the state that its second attempt has."""

    def events(rank):
        for attempt in (1, 2):
            yield started(rank)
            for number in (1, 2) if rank == 0 or attempt == 2 else (1,):
                print_ = fingerprint(0, number, "state", more=[f"run{attempt}"])
                digests = dict.fromkeys(print_.digests, f"attempt {attempt}")
                yield type(print_)(rank=rank, step=number, moment="state", digests=digests, attempt=attempt)

    assert found(ReplicasDiverge, job(events)) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """There is nothing to compare with."""
    assert found(ReplicasDiverge, without(job(diverging), 1)) == []


def test_one_process_has_no_replicas():
    """World size 1."""
    assert (
        found(ReplicasDiverge, job(lambda rank: [unwrapped(1), *states(rank, STEPS, NAMES), ended(8)], world=1)) == []
    )
