"""Steps, epochs and batches that grow: laws that hold for every plan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.train.duration import Duration
from paceline.train.plan import Cadence, Plan, Stage, grow


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """With up to three growths."""
    samples = draw(st.integers(1, 300))
    batch = draw(st.integers(1, 64))
    epochs = sorted(draw(st.sets(st.integers(1, 8), max_size=3)))
    stages = tuple(Stage(epoch, batch * 2 ** (n + 1), 1) for n, epoch in enumerate(epochs))
    return Plan(samples, batch, 1, 0, 1, 0, stages)


@settings(deadline=None)
@given(plan=plans())
def test_counting_through_the_epochs_finds_every_step_where_locate_says(plan: Plan) -> None:
    """The reference counts one by one."""
    step = 0
    for epoch in range(10):
        assert plan.first_step(epoch) == step
        for index in range(plan.steps_in(epoch)):
            assert plan.locate(step) == (epoch, index)
            step += 1


@settings(deadline=None)
@given(plan=plans(), epoch=st.integers(0, 9))
def test_an_epoch_holds_every_sample_whatever_its_batches_are(plan: Plan, epoch: int) -> None:
    """Batch sizes add up to the set."""
    assert sum(plan.batch_size(epoch, index) for index in range(plan.steps_in(epoch))) == plan.samples


@settings(deadline=None)
@given(plan=plans(), every=st.integers(1, 4))
def test_what_is_due_each_epoch_is_due_exactly_at_the_ends_of_epochs(plan: Plan, every: int) -> None:
    """Also when epochs have fewer steps later on."""
    cadence = Cadence(Duration.parse(f"{every}ep", "--x"), plan)

    due = [step for step in range(1, plan.first_step(9) + 1) if cadence.due(step)]

    assert due == [plan.first_step(epoch) for epoch in range(every, 10, every)]


@settings(deadline=None)
@given(every=st.integers(1, 50))
def test_what_is_due_in_steps_is_due_at_multiples(every: int) -> None:
    """Epochs do not matter."""
    cadence = Cadence(Duration.parse(str(every), "--x"), Plan(10, 3, 1, 0, 1, 0))

    assert [step for step in range(1, 200) if cadence.due(step)] == list(range(every, 200, every))


@pytest.mark.parametrize("every", ["0.25ep", "0.1ep", "0.5ep"])
def test_parts_of_an_epoch_fall_due_as_often_as_they_fit(every: str) -> None:
    """A hundred steps in three epochs of 40."""
    plan = Plan(400, 10, 1, 0, 1, 0)
    cadence = Cadence(Duration.parse(every, "--x"), plan)

    due = [step for step in range(1, 121) if cadence.due(step)]

    assert len(due) == round(3 / float(every.removesuffix("ep")))
    assert {40, 80, 120} <= set(due)


def test_the_batch_grows_where_the_rate_would_drop_until_it_is_too_large() -> None:
    """Factor 0.1 from 64: 640 at a third, then 6,400 is beyond the limit, so there the rate has to drop."""
    stages, drops = grow(Plan(60_000, 64, 2, 0, 1, 0), 90, (1 / 3, 2 / 3, 8 / 9), 0.1, 6000)

    assert stages == (Stage(30, 640, 20),)
    assert drops == [60, 80]


def test_micro_batches_stay_as_small_as_they_were() -> None:
    """A device that holds the first batch holds all later ones."""
    plan = Plan(1000, 30, 2, 0, 3, 0)
    stages, _ = grow(plan, 4, (0.5,), 0.4, 1000)
    grown = Plan(1000, 30, 2, 0, 3, 0, stages)

    assert grown.stage(2).global_batch == 75
    assert max(len(span) for span in grown.micro_batches(3, 0)) <= max(len(span) for span in plan.micro_batches(0, 0))


def test_two_drops_in_one_epoch_grow_twice() -> None:
    """In a short run fractions may be moved to the same epoch."""
    stages, drops = grow(Plan(1000, 10, 1, 0, 1, 0), 3, (0.3, 0.4), 0.5, 1000)

    assert (stages, drops) == ((Stage(1, 40, 4),), [])
