"""Steps, epochs and batches that grow: laws that hold for every plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallel.placement import RankEnv
from paceline.records.errors import PacelineError
from paceline.tasks.table import Defaults
from paceline.train.batch_plan import Cadence, Plan, Stage, grow, lonely_batch
from paceline.train.config import TrainConfig
from paceline.train.resolve import plan_training
from paceline.train.schedules import Duration, Schedule


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """With up to three growths."""
    samples = draw(st.integers(1, 300))
    batch = draw(st.integers(1, 64))
    epochs = sorted(draw(st.sets(st.integers(1, 8), max_size=3)))
    stages = tuple(Stage(epoch, batch * 2 ** (n + 1), 1) for n, epoch in enumerate(epochs))
    return Plan(samples, batch, 1, 0, 1, 0, stages)


@given(plan=plans())
def test_counting_through_the_epochs_finds_every_step_where_locate_says(plan: Plan) -> None:
    """The reference counts one by one."""
    step = 0
    for epoch in range(10):
        assert plan.first_step(epoch) == step
        for index in range(plan.steps_in(epoch)):
            assert plan.locate(step) == (epoch, index)
            step += 1


@given(plan=plans(), epoch=st.integers(0, 9))
def test_an_epoch_holds_every_sample_whatever_its_batches_are(plan: Plan, epoch: int) -> None:
    """Batch sizes add up to the set."""
    assert sum(plan.batch_size(epoch, index) for index in range(plan.steps_in(epoch))) == plan.samples


@given(plan=plans(), every=st.integers(1, 4))
def test_what_is_due_each_epoch_is_due_exactly_at_the_ends_of_epochs(plan: Plan, every: int) -> None:
    """Also when epochs have fewer steps later on."""
    cadence = Cadence(Duration.parse(f"{every}ep", "--x"), plan)

    due = [step for step in range(1, plan.first_step(9) + 1) if cadence.due(step)]

    assert due == [plan.first_step(epoch) for epoch in range(every, 10, every)]


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


def test_a_growth_at_the_end_of_a_run_is_moved_into_it() -> None:
    """0.9 of four epochs is nearest to their end, where nothing would grow; in one epoch nothing can."""
    plan = Plan(1000, 10, 1, 0, 1, 0)

    assert grow(plan, 4, (0.9,), 0.5, 1000) == ((Stage(3, 20, 2),), [])
    assert grow(plan, 4, (0.9,), 0.5, 15) == ((), [3])
    assert grow(plan, 1, (0.5,), 0.5, 1000) == ((), [])


def table(samples: int = 1000, world: int = 1, **given: object) -> tuple[Plan, Schedule]:
    """Of a task whose own batch is 10, for 4 epochs unless it is said otherwise."""
    length = {} if "steps" in given else {"epochs": 4}
    config = TrainConfig("t", **{**length, **given})  # type: ignore[arg-type]
    planned = plan_training(config, Defaults(global_batch=10), samples, RankEnv(0, 0, world, world, 1))
    return planned.batches, planned.schedule


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_batch": 15}, "the most is 15 (--max-batch 15)"),
        (
            {"decay_factor": 0.05},
            "its first growth would make it 200, and the most is 100 (a tenth of the training set)",
        ),
        ({"decay_factor": 0.005, "max_batch": 9999}, "the most is 1,000 (the training set)"),
    ],
)
def test_a_batch_that_was_to_grow_and_never_would_is_refused(given: dict[str, object], words: str) -> None:
    """Instead of a run that looks like any other."""
    with pytest.raises(PacelineError, match="--grow-batch would leave the batch at 10 throughout") as caught:
        table(grow_batch=True, schedule="step", **given)

    assert words in caught.value.why
    with pytest.raises(PacelineError, match="--grow-batch needs two epochs"):
        table(grow_batch=True, schedule="step", decay_factor=0.5, epochs=1)


def test_a_grown_batch_must_give_each_worker_a_sample_of_each_micro_batch() -> None:
    """From 10 to 12 in two micro-batches of 6, where seven workers had a sample each of the first ones."""
    growing = {"grow_batch": True, "schedule": "step", "decay_at": "0.5", "decay_factor": 10 / 12}
    table(world=6, **growing)

    with pytest.raises(PacelineError, match="a global batch of 12 cannot be shared by 7 workers in 2 micro-batches"):
        table(world=7, **growing)


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_a_drop_of_the_rate_falls_within_the_run(steps: int) -> None:
    """However short it is: never before the first step, and before the last where there are two."""
    _, schedule = table(steps=steps, schedule="step", decay_at="0.01,0.99", decay_factor=0.5)

    rates = [schedule.at(step) / schedule.lr for step in range(steps)]

    assert rates[0] == 1
    assert rates[-1] == (1 if steps == 1 else 0.25)


def test_a_batch_is_at_most_the_training_set() -> None:
    """A rule counts no more than there is: 100 samples are 10 times the base batch, whatever was asked for."""
    plan, schedule = table(samples=100, global_batch=4000, lr=0.1, lr_rule="linear")

    assert (plan.global_batch, plan.steps_per_epoch) == (100, 1)
    assert schedule.lr == pytest.approx(1.0)
    with pytest.raises(PacelineError, match="a global batch of 3 cannot be shared by 4 workers"):
        table(samples=3, world=4)


@given(
    samples=st.integers(1, 60),
    batch=st.integers(1, 60),
    accumulation=st.integers(1, 3),
    world=st.integers(1, 4),
    steps=st.integers(1, 70),
    together=st.booleans(),
)
def test_a_lonely_sample_is_found_where_counting_finds_one(
    samples: int, batch: int, accumulation: int, world: int, steps: int, together: bool
) -> None:
    """The reference goes through every step of the run and looks at every rank's part."""
    batch = min(batch, samples)
    plans = [
        Plan(samples, batch, accumulation, 0, world, rank, (Stage(2, 2 * batch, accumulation),))
        for rank in range(world)
    ]
    lonely = set()
    for step in range(steps):
        at = plans[0].locate(step)
        sizes = [[len(span) for span in plan.micro_batches(*at)] for plan in plans]
        parts = [sum(micro) for micro in zip(*sizes, strict=True)] if together else [n for rank in sizes for n in rank]
        lonely |= {plans[0].batch_size(*at)} if 1 in parts else set()

    assert lonely_batch(plans[0], steps, together=together) == max(lonely, default=0)
