"""Recommendations: the fastest that is efficient enough, with a rate that fits its batch, and what would change it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from paceline.plan.advise import Recipe, Wish, growth_of_rate, recommend
from paceline.plan.batch import table, usual_batches
from paceline.plan.collectives import Link, Network
from paceline.plan.discrepancy import Discrepancy
from paceline.plan.jitter import Jitter
from paceline.plan.refits import Predictor
from paceline.plan.step_time import Coefficients, Setting, StepTime
from paceline.plan.steps import Branched, Steps, steps_of_run
from paceline.stats.hyperbola import fit
from paceline.stats.intervals import Interval
from paceline.stats.noise_scale import NoiseScale, Window

SIZES = [64, 256, 1024, 4096]
STEPS = Steps(64, hyperbola=fit(SIZES, [400 + 400 * 512 / size for size in SIZES]))
SPEED = StepTime(Coefficients(0.002, 0.0002, 0.0, 0.001, 0.3, 1.0, 0.0), Network(Link(2e-4, 1e9)), 4e6, Jitter(), 2)
RECIPE = Recipe(("--lr", "0.3"), 0.3, "a rule", "200")
WISH = Wish("digits", 10_000, lambda batch: RECIPE, target="accuracy=0.9")


@dataclasses.dataclass(frozen=True)
class Timed(Predictor):
    """Steps that take as long as the model says, within a factor of `width`."""

    width: float = 1.0

    def step(self, setting: Setting) -> Interval:
        """A step."""
        best = self.model.step_s(setting)
        return Interval(best, best / self.width, best * self.width)


def timed(model: StepTime = SPEED, width: float = 1.0) -> Predictor:
    """With intervals of 80 %."""
    return Timed(model, [], Discrepancy({1: 0.0}, (1, 1), (1, 1)), 0.8, width)


def test_the_table_has_steps_times_and_both_efficiencies() -> None:
    """Time is steps times the step; a batch is not shared out among more workers than it has samples."""
    rows = {(row.batch, row.workers): row for row in table(STEPS, timed(), [4, 64, 1024], [1, 8])}

    assert rows.keys() == {(4, 1), (64, 1), (64, 8), (1024, 1), (1024, 8)}
    row = rows[1024, 8]
    step_s = 1024 / row.samples_per_s
    assert row.steps.value == pytest.approx(600, rel=1e-6)
    assert row.time_s.value == pytest.approx(600 * step_s, rel=1e-6)
    assert row.samples == pytest.approx(600 * 1024, rel=1e-6)
    assert row.statistical == pytest.approx(64 * STEPS.at(64).value / (1024 * STEPS.at(1024).value))
    assert rows[64, 1].system == 1 > rows[64, 8].system > 0
    assert table(STEPS, None, [64], [1])[0].time_s is None


def test_efficiency_is_progress_per_worker_beside_one_worker_at_the_base_batch() -> None:
    """Also where a step of few samples takes as long as its launch: the time of one worker at the base batch, over
    workers times the time. A launch that hides 50 samples must not make further workers look free."""
    launched = dataclasses.replace(SPEED, coefficients=dataclasses.replace(SPEED.coefficients, floor=0.02))

    rows = {(row.batch, row.workers): row for row in table(STEPS, timed(launched), [64, 128, 256], [1, 4, 32])}

    alone = rows[64, 1].time_s.value
    for row in rows.values():
        assert row.efficiency == pytest.approx(alone / (row.workers * row.time_s.value), rel=1e-9)
    assert rows[64, 32].efficiency < 1 / 25


def test_workers_of_several_machines_are_timed_as_such() -> None:
    """Only those of one machine slow each other down, by up to three times here."""
    crowded = dataclasses.replace(SPEED.coefficients, crowding=2.0)
    apart = dataclasses.replace(SPEED, coefficients=crowded, network=Network(Link(2e-4, 1e9), per_node=2))

    (row,) = table(STEPS, timed(apart), [1024], [8])

    assert row.samples_per_s == pytest.approx(apart.samples_per_s(Setting(8, 128, 1, 2)))
    assert row.samples_per_s > 1.2 * apart.samples_per_s(Setting(8, 128, 1, None))


def test_the_interval_of_a_time_is_that_of_steps_and_of_a_step() -> None:
    """A step within 10 % at 80 % is within 1.1^1.283 at 90 %; steps that are known exactly add nothing to it, and those
    that lie between two bounds multiply with it."""
    noise = (Window(1, 100, NoiseScale(64.0, 32.0, 128.0, 1.0, 1.0, 100, 0.9)),)
    wider = 1.1 ** (1.6448536 / 1.2815516)

    (exact,) = table(STEPS, timed(width=1.1), [256], [1])
    (bounded,) = table(steps_of_run(noise, 64, 1000), timed(width=1.1), [256], [1])

    assert exact.time_s.high / exact.time_s.value == pytest.approx(wider, rel=1e-5)
    assert exact.time_s.value / exact.time_s.low == pytest.approx(wider, rel=1e-5)
    step_s = SPEED.step_s(Setting(1, 256))
    assert bounded.time_s.low == pytest.approx(250 * step_s / wider)
    assert bounded.time_s.high == pytest.approx(1000 * step_s * wider)


def test_scattered_steps_and_steps_of_unknown_length_add_up_in_squares() -> None:
    """In the logarithm; where nothing is known of a step, there is no end."""
    scattered = Steps(64, hyperbola=fit(SIZES, [3500, 1250, 590, 455]))

    (row,) = table(scattered, timed(width=1.1), [256], [1])
    (unknown,) = table(scattered, timed(width=math.inf), [256], [1])

    apart = math.hypot(math.log(row.steps.high / row.steps.value), math.log(1.1) * 1.6448536 / 1.2815516)
    assert math.log(row.time_s.high / row.time_s.value) == pytest.approx(apart, rel=1e-5)
    assert (unknown.time_s.low, unknown.time_s.high) == (0.0, None)


def test_workers_far_beyond_what_was_timed_are_told() -> None:
    """Over 16 times the two of `SPEED`."""
    assert SPEED.farther([1, 32, 33, 64]) == [33, 64]


def test_the_fastest_setting_that_is_efficient_enough_is_recommended() -> None:
    """Against the whole table, by brute force; asking for more efficiency takes fewer workers or a smaller batch."""
    rows = table(STEPS, timed(), [64, 128, 256, 512, 1024, 2048], [1, 2, 4, 8, 16])
    efficient = [row for row in rows if row.system * row.statistical >= 0.5]
    fastest = min(efficient, key=lambda row: row.time_s.value)

    found = recommend(rows, STEPS, WISH)
    strict = recommend(rows, STEPS, dataclasses.replace(WISH, least_efficiency=0.8))

    assert (found.batch, found.workers) == (fastest.batch, fastest.workers)
    assert strict.batch * strict.workers < found.batch * found.workers
    assert recommend(rows, STEPS, dataclasses.replace(WISH, least_efficiency=9)) is None
    assert found.command.startswith(f"paceline train digits --global-batch {found.batch} --workers {found.workers}")
    assert "--lr 0.3" in found.command
    assert found.command.endswith("--target accuracy=0.9")
    assert (found.lr, found.rule, found.warmup) == (0.3, "a rule", "200")


def test_without_times_the_largest_efficient_batch_is_recommended_on_any_workers() -> None:
    """And how times are had is said."""
    found = recommend(table(STEPS, None, SIZES, [1, 2]), STEPS, dataclasses.replace(WISH, least_efficiency=0.35))

    assert (found.batch, found.workers) == (1024, None)
    assert any("plan speed" in reason for reason in found.unless)
    assert "--workers" not in found.command


def test_the_run_is_long_enough_for_its_target() -> None:
    """At a batch of 1,024 ten steps an epoch: the upper end of steps, where only the target ends a run; without one, or
    where the rate falls over the length, the steps in proportion to those of the run."""
    scattered = Steps(64, hyperbola=fit(SIZES, [3500, 1250, 590, 455]))
    rows = table(scattered, None, [1024], [1])
    steps = rows[0].steps
    falling = dataclasses.replace(RECIPE, stretch=1.5)
    asked = {
        "target": (WISH, steps.high),
        "none": (dataclasses.replace(WISH, target=None), steps.value),
        "falling": (dataclasses.replace(WISH, recipe_at=lambda batch: falling), 1.5 * steps.value),
    }

    for name, (wish, needed) in asked.items():
        found = recommend(rows, scattered, dataclasses.replace(wish, least_efficiency=0.1))

        assert f"--epochs {math.ceil(needed / 10)}" in found.command, name
    assert steps.high > 1.05 * steps.value


def test_the_rate_grows_with_what_a_step_gains() -> None:
    """For Adam and its kin with the root of the growth instead."""
    assert growth_of_rate("sgd", 5.0, 16.0) == growth_of_rate("lars", 5.0, 16.0) == 5.0
    assert growth_of_rate("adamw", 5.0, 16.0) == growth_of_rate("lamb", 5.0, 16.0) == 4.0


def test_what_branches_settled_is_not_to_be_settled_again() -> None:
    """The advice of --confirm does not ask for --confirm, and says what the branches found."""
    window = Window(1, 1000, NoiseScale(100.0, 50.0, 200.0, 1.0, 1.0, 100, 0.9))
    guess, settled = (
        steps_of_run([window], 64, 1000, branched) for branched in (None, Branched(512, Interval(100.0, 100.0, 100.0)))
    )

    before = recommend(table(guess, None, [64, 512], [1]), guess, WISH)
    after = recommend(table(settled, None, [64, 512], [1]), settled, WISH)

    assert (before.batch, after.batch) == (64, 512)
    assert any("--confirm" in reason for reason in before.unless)
    assert not any("--confirm" in reason for reason in after.unless)
    assert any("lost nothing up to a batch of 512" in reason for reason in after.because)


def test_usual_batches_reach_beyond_the_knee_and_no_further() -> None:
    """Powers of two of the base, to four times the critical batch, or the data set."""
    assert usual_batches(64, 512, 10**6) == [64, 128, 256, 512, 1024, 2048]
    assert usual_batches(64, 512, 600) == [64, 128, 256, 512]
    assert usual_batches(64, None, 10**6)[-1] == 64 * 64
