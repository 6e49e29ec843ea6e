"""Parameters unfrozen after wrapping are an error where they differ; toggled sets that come back are fine."""

from __future__ import annotations

from paceline.audits.dp105_trainable_set_changed import TrainableSetChanged
from paceline.records.observed_rank import ModelMoved, TrainableChanged
from tests.audits.observed_events import ended, fingerprint, found, job, states, step, without, wrapped

STEPS = (1, 2, 3, 5, 8)
HEAD = ["head.weight"]


def changed(at=2, *, number=0, added=HEAD, removed=()):
    """What the probe writes at a step."""
    return TrainableChanged(number=number, step=at, added=list(added), removed=list(removed))


def unfreezing(rank, *, differ=HEAD, at=2, number=0):
    """Two steps with a frozen head, then without."""
    yield wrapped()
    for count in STEPS:
        if count == at:
            yield changed(at, number=number)
        yield step(count)
        yield from states(rank, [count], differ, since=at, more=HEAD)


def test_a_head_that_is_unfrozen_after_wrapping_is_an_error_where_it_differs():
    """Named with its step."""
    (finding,) = found(TrainableSetChanged, job(unfreezing))

    assert (finding.severity, finding.faults, finding.step) == ("error", ["F43"], 2)
    assert finding.message.startswith("head.weight became trainable after DDP registered its parameters (step 2)")
    assert "rank 1 holds different values of head.weight after step 2" in finding.message


def test_parameters_of_a_second_model_are_found_under_its_prefix():
    """With three ranks."""
    (finding,) = found(
        TrainableSetChanged, job(lambda rank: unfreezing(rank, differ=["1/head.weight"], number=1), world=3)
    )

    assert "ranks 1 and 2" in finding.message
    assert finding.message.startswith("1/head.weight")


def test_unfrozen_parameters_that_agree_are_fine():
    """No optimizer trains them, or the script reduces them."""
    assert found(TrainableSetChanged, job(lambda rank: [*unfreezing(rank, differ=()), ended(8)])) == []


def test_other_parameters_that_differ_have_another_cause():
    """The head agrees."""
    assert found(TrainableSetChanged, job(lambda rank: unfreezing(rank, differ=["fc1.weight"]))) == []


def test_frozen_parameters_are_fine_while_the_ranks_agree():
    """Fewer gradients than registered."""
    events = job(lambda rank: [wrapped(), changed(added=(), removed=HEAD), *states(rank, STEPS)])

    assert found(TrainableSetChanged, events) == []


def test_frozen_parameters_are_an_error_where_the_ranks_part_from_then_on():
    """The reducer waits for gradients that never come."""
    (finding,) = found(
        TrainableSetChanged,
        job(lambda rank: [changed(added=(), removed=HEAD), *states(rank, STEPS, ["fc1.weight"], since=2)]),
    )

    assert "became frozen or replaced" in finding.message


def test_sets_that_a_gan_toggles_are_fine():
    """They come back before the next phase."""

    def events(rank):
        yield wrapped()
        for count in STEPS:
            yield changed(count, added=(), removed=HEAD)
            yield step(count)
            yield changed(count, added=(), removed=())
        yield ended(8)

    assert found(TrainableSetChanged, job(events)) == []


def unseen(*more):
    """Unfrozen, without any fingerprint."""
    return [wrapped(), step(1), step(2), changed(2), step(3), *more, ended(3)]


def test_without_fingerprints_it_is_a_warning():
    """Their gradients are not reduced; what was compared before the change is no evidence."""
    before = job(lambda rank: [fingerprint(rank, 1, "state"), *unseen()])
    running = job(lambda rank: unseen()[:-1])

    for events in (job(lambda rank: unseen()), before, running):
        (finding,) = found(TrainableSetChanged, events)
        assert finding.severity == "warning"


def test_another_model_that_is_wrapped_later_does_not_register_them():
    """Only a wrapper of the same model does."""
    assert len(found(TrainableSetChanged, job(lambda rank: unseen(wrapped(1, model="Critic", step=3))))) == 1


def test_without_fingerprints_a_set_that_came_back_a_new_wrapper_or_a_reduction_is_silent():
    """Each is another explanation."""
    for more in (changed(3, added=()), wrapped(1, step=3), step(4, own_reductions=2), step(4, own_averages=1)):
        assert found(TrainableSetChanged, job(lambda rank, more=more: unseen(more))) == []


def test_a_set_that_changes_after_the_last_step_is_fine():
    """Nothing is trained with it."""
    assert found(TrainableSetChanged, job(lambda rank: [wrapped(), step(1), step(2), changed(2), ended(2)])) == []


def test_a_frozen_set_that_came_back_explains_nothing():
    """Nor does one that never changed."""
    back = [changed(1, added=(), removed=HEAD), changed(2, added=())]

    for more in (back, [changed(1, added=())]):
        events = job(lambda rank, more=more: [*more, *states(rank, STEPS, ["fc1.weight"], since=3)])
        assert found(TrainableSetChanged, events) == []


def test_parameters_that_a_conversion_replaced_are_another_audits_matter():
    """One finding per cause; a call that replaces nothing is no cause."""
    for replaced, count in ((3, 0), (0, 1)):
        moved = ModelMoved(number=0, step=1, replaced=replaced, converted=0)
        assert len(found(TrainableSetChanged, job(lambda rank, moved=moved: [moved, *unfreezing(rank)]))) == count


def test_before_the_run_ended_a_fingerprint_may_still_come():
    """The next one is due at step 5."""
    events = job(lambda rank: [wrapped(), *states(rank, [1]), changed(2), step(3)])

    assert found(TrainableSetChanged, events) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """There is nothing to compare with."""
    assert found(TrainableSetChanged, without(job(unfreezing), 1)) == []
    assert found(TrainableSetChanged, without(job(lambda rank: unseen()), 0)) == []


def test_a_difference_at_the_end_is_the_effect_where_no_state_was_compared_since():
    """The next fingerprint was not due."""
    events = job(lambda rank: [*states(rank, (1,), more=HEAD), changed(2), fingerprint(rank, 3, "end", HEAD)])

    (finding,) = found(TrainableSetChanged, events)

    assert "at the end of the run" in finding.message


def test_the_last_state_before_the_end_decides_where_both_are_there():
    """A difference that only the end shows has another cause."""

    def events(rank):
        yield changed(2)
        yield from states(rank, STEPS, more=HEAD)
        yield fingerprint(rank, 9, "end", HEAD)

    assert found(TrainableSetChanged, job(events)) == []
