"""A wrapped model that is converted and trained on is an error where the ranks part."""

from __future__ import annotations

from paceline.audits.dp116_moved_after_wrap import MovedAfterWrap
from paceline.records.observed_rank import ModelMoved
from tests.audits.observed_events import NAMES, at, collective, ended, found, job, states, step, without, wrapped

STEPS = (1, 2, 3, 5)


def moved(after=2, *, replaced=0, converted=3):
    """A conversion."""
    return ModelMoved(number=0, step=after, replaced=replaced, converted=converted, place=at(35))


def moving(rank, *, differ=NAMES, **other):
    """A conversion after step 2."""
    yield wrapped()
    for number in STEPS:
        yield step(number)
        yield from states(rank, [number], differ, since=3)
        if number == 2:
            yield moved(**other)


def test_a_round_trip_that_replaces_parameters_is_an_error_where_the_ranks_part():
    """Named with its line."""
    (finding,) = found(MovedAfterWrap, job(lambda rank: moving(rank, replaced=3, converted=0)))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F45"], 2, 35)
    assert "after step 2 replaced 3 parameters of the wrapped model: rank 1 holds different values" in finding.message


def test_a_change_of_type_or_device_is_an_error_where_the_ranks_part():
    """With three ranks; it may have been a round trip."""
    (finding,) = found(MovedAfterWrap, job(moving, world=3))

    assert finding.faults == ["F45", "F54"]
    assert "ranks 1 and 2" in finding.message


def test_a_conversion_that_leaves_the_ranks_equal_is_fine():
    """DDP still reduces."""
    assert found(MovedAfterWrap, job(lambda rank: [*moving(rank, differ=()), ended(5)])) == []


def test_a_call_that_changes_nothing_is_fine():
    """`.to(device)` where the model is there already."""
    assert found(MovedAfterWrap, job(lambda rank: moving(rank, converted=0))) == []


def test_a_model_that_is_moved_after_its_last_step_is_fine():
    """To be saved."""
    assert found(MovedAfterWrap, job(lambda rank: [wrapped(), step(1), step(2), moved(), ended(2)])) == []


def test_a_difference_that_is_older_has_another_cause():
    """The ranks parted at step 1."""
    assert found(MovedAfterWrap, job(lambda rank: [*states(rank, STEPS, NAMES), moved(3), step(4)])) == []


def test_without_fingerprints_training_on_is_a_warning():
    """DDP keeps the buckets of the old type; what was compared before is no evidence."""
    unseen = [wrapped(), step(1), moved(1), step(2)]
    before = job(lambda rank: [*states(rank, [1]), *unseen, ended(2)])
    after = job(lambda rank: [*unseen, *states(rank, [2]), ended(2)])

    for events in (job(lambda rank: unseen), before):
        (finding,) = found(MovedAfterWrap, events)
        assert (finding.severity, finding.faults) == ("warning", ["F54"])
    assert found(MovedAfterWrap, after) == []
    assert found(MovedAfterWrap, job(lambda rank: [*unseen, step(3, own_averages=1)])) == []


def test_local_sgd_is_left_alone():
    """Parameters are averaged later."""
    assert found(MovedAfterWrap, job(lambda rank: [*moving(rank), collective(on="parameters", step=5)])) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """There is nothing to compare with."""
    assert found(MovedAfterWrap, without(job(moving), 1)) == []
