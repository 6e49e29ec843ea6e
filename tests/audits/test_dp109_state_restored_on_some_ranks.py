"""A state that some ranks restore is an error where training goes on from different states."""

from __future__ import annotations

import pytest

from paceline.audits.dp109_state_restored_on_some_ranks import StateRestoredOnSomeRanks
from paceline.records.observed_rank import StateRestored
from tests.audits.observed_events import NAMES, at, ended, fingerprint, found, job, states, step, without, wrapped

STEPS = (1, 2, 3, 5)


def restored(done=2, *, what="model", after_wrap=True, name="Net"):
    """A call of load_state_dict."""
    return StateRestored(what=what, name=name, step=done, after_wrap=after_wrap, place=at(15))


def resuming(rank, *, by=(0,), done=2, differ=NAMES, kind="parameter", **other):
    """Some ranks restore after a step."""
    yield wrapped()
    if rank in by and not done:
        yield restored(0, **other)
    for number in STEPS:
        yield step(number)
        yield fingerprint(rank, number, "state", differ if number > done else (), kind=kind)
        if rank in by and number == done:
            yield restored(done, **other)


def test_a_model_that_rank_0_alone_restores_after_wrapping_is_an_error():
    """DDP broadcasts in its constructor only."""
    (finding,) = found(StateRestoredOnSomeRanks, job(resuming))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F95"], 2, 15)
    assert finding.message.startswith(
        "only rank 0 restored the model (Net) after step 2; rank 1 holds different values"
    )


def test_a_model_restored_before_the_first_step_differs_from_the_start():
    """With three ranks, of which two load."""

    def events(rank):
        yield from [restored(0)] if rank < 2 else []
        yield fingerprint(rank, 0, "start", NAMES if rank == 2 else ())
        for number in STEPS:
            yield step(number)
            yield from states(rank, [number], NAMES if rank == 2 else ())

    (finding,) = found(StateRestoredOnSomeRanks, job(events, world=3))

    assert "only ranks 0 and 1 restored the model (Net) before the first step; rank 2 holds" in finding.message


def test_an_optimizer_that_some_ranks_restore_is_an_error():
    """Momentum differs; parameters need not yet."""
    (finding,) = found(
        StateRestoredOnSomeRanks,
        job(
            lambda rank: resuming(
                rank, what="optimizer", after_wrap=False, name="Adam", kind="optimizer", differ=["fc1.weight:exp_avg"]
            )
        ),
    )

    assert "restored the optimizer (Adam)" in finding.message
    assert "different optimizer state for fc1.weight:exp_avg" in finding.message


def test_a_state_that_all_ranks_restore_is_fine():
    """A usual resume."""
    assert found(StateRestoredOnSomeRanks, job(lambda rank: resuming(rank, by=(0, 1), differ=()))) == []
    assert found(StateRestoredOnSomeRanks, job(lambda rank: resuming(rank, by=(0, 1)))) == []


def test_a_model_that_rank_0_restores_before_wrapping_is_fine():
    """DDP broadcasts it; what differs later has another cause."""
    events = job(lambda rank: resuming(rank, done=0, after_wrap=False))

    assert found(StateRestoredOnSomeRanks, events) == []


def test_a_restore_that_the_script_broadcasts_is_fine():
    """The ranks agree after it."""
    assert found(StateRestoredOnSomeRanks, job(lambda rank: resuming(rank, differ=()))) == []


def test_the_best_checkpoint_that_rank_0_loads_for_its_last_evaluation_is_fine():
    """No step follows."""

    def events(rank):
        yield wrapped()
        for number in STEPS:
            yield step(number)
            yield from states(rank, [number])
        yield from [restored(5)] if rank == 0 else []
        yield fingerprint(rank, 5, "end", NAMES)
        yield ended(5)

    assert found(StateRestoredOnSomeRanks, job(events)) == []


def test_a_difference_that_is_older_has_another_cause():
    """The ranks parted at step 1."""

    def events(rank):
        yield from states(rank, (1, 2), NAMES)
        yield from [restored(2)] if rank == 0 else []
        yield step(3)

    assert found(StateRestoredOnSomeRanks, job(events)) == []


def test_an_optimizer_whose_state_differed_before_has_another_cause():
    """It is sharded over ranks, for example."""

    def events(rank):
        yield fingerprint(rank, 1, "state", ["fc1.weight:exp_avg"], kind="optimizer")
        yield from resuming(rank, what="optimizer", after_wrap=False, kind="optimizer", differ=())

    assert found(StateRestoredOnSomeRanks, job(events)) == []


def test_ranks_that_have_not_gone_on_may_still_restore():
    """Rank 1 has not come to that point."""

    def events(rank):
        yield from [step(1), step(2), fingerprint(rank, 2, "state", NAMES)]
        yield from [restored(2), step(3)] if rank == 0 else []

    assert found(StateRestoredOnSomeRanks, job(events)) == []


def test_without_fingerprints_it_is_a_warning():
    """Once all ranks have gone on."""

    def events(rank):
        yield from [step(1), step(2), *[restored(2)] * (rank == 0), step(3)]

    (finding,) = found(StateRestoredOnSomeRanks, job(events))

    assert finding.severity == "warning"
    averaging = job(lambda rank: [*events(rank), step(4, own_averages=1)])
    assert found(StateRestoredOnSomeRanks, averaging) == []


@pytest.mark.parametrize("gone", [0, 1])
def test_a_rank_that_wrote_nothing_gives_no_finding(gone):
    """Whether it restored too is not known."""
    assert found(StateRestoredOnSomeRanks, without(job(resuming), gone)) == []
