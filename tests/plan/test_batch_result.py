"""From written-down runs to the whole result: what is fitted, what is left out, what is recommended, what is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from paceline.plan.batch_result import Question, from_noise, from_runs
from paceline.plan.branch import Settled
from paceline.plan.recipes import TrainSettings
from paceline.plan.speed import predictor_of
from paceline.plan.step_time import Coefficients
from paceline.records.errors import PacelineError
from paceline.records.plan_results import BatchResult, Branch, SpeedDraw
from paceline.records.target import parse_target
from paceline.settings.flag_text import parse_flags
from paceline.studies.train_flags import recipe_flags, used
from paceline.tasks.table import BUILT_IN
from paceline.train.config import TrainConfig
from paceline.train.resolve import recipe, resolve
from tests.plan.runs import training
from tests.report import plans

CONFIG = {
    "task": "digits",
    "optimizer": "sgd",
    "momentum": 0.9,
    "schedule": "constant",
    "lr": 0.1,
    "lr_rule": "none",
    "base_batch": 64,
    "warmup": "0",
}
QUESTION = Question([1, 2], 0.3, TrainSettings(used, recipe_flags), parse_target("accuracy=0.9"))
WITHOUT_TARGET = dataclasses.replace(QUESTION, target=None)


def one(path: Path, batch: int, seed: int = 0, meets: bool = True, **config: object) -> Path:
    """A run that takes 100 + 25,600 / batch steps to an accuracy of 0.9, with seeds 4 % apart."""
    steps = round((100 + 25_600 / batch) * (1 + 0.02 * (2 * seed - 1)))
    evaluations = [(steps // 2, 0.8), (steps, 0.9), (2 * steps, 0.95)] if meets else [(steps, 0.5), (2 * steps, 0.85)]
    where = path / f"{batch}-{seed}"
    return training(where, micro=batch, evaluations=evaluations, config=CONFIG | {"seed": seed} | config)


@pytest.fixture
def sweep(tmp_path: Path) -> list[Path]:
    """Four batches with two seeds: the critical batch is 256."""
    return [one(tmp_path, batch, seed) for batch in (32, 128, 512, 2048) for seed in (0, 1)]


def noisy(path: Path, noise: float = 100.0, evaluations: Sequence[tuple[int, float]] = ()) -> Path:
    """One run of 800 steps at a batch of 64, whose noise scale grows to ten times after half of it."""
    scales = [(step, noise if step <= 400 else 10 * noise) for step in range(10, 801, 10)]
    return training(path, micro=64, noise=scales, evaluations=evaluations, config=CONFIG)


def row_of(result: BatchResult, batch: int) -> plans.BatchRow:
    """With one worker."""
    return next(row for row in result.table if (row.batch, row.workers) == (batch, 1))


def test_runs_give_the_hyperbola_and_the_advice_of_their_training(sweep: list[Path]) -> None:
    """The least steps and samples with intervals, one held-out prediction, and a command with their settings."""
    result = from_runs(sweep, QUESTION)

    for found, truth in ((result.critical, 256), (result.least_steps, 100), (result.least_samples, 25_600)):
        assert found.low < truth < found.high
    assert [held.what for held in result.evidence.held_out] == ["steps at a batch of 2,048, from the smaller ones"]
    assert result.evidence.held_out[0].measured == pytest.approx(112.5, abs=0.5)
    assert len(result.points) == 8
    advice = result.recommendation
    assert advice.command.startswith(f"paceline train digits --global-batch {advice.batch} ")
    for flag in ("--momentum 0.9", "--schedule constant", "--warmup 0", "--lr 0.1", "--optimizer sgd"):
        assert flag in advice.command
    assert advice.command.endswith("--target accuracy=0.9")
    assert not result.warnings[1:], result.warnings
    assert "no times" in result.warnings[0]


def test_intervals_of_hardly_any_runs_are_wide_and_why_is_said(sweep: list[Path]) -> None:
    """Four runs at four batches, instead of eight."""
    few, all_ = from_runs(sweep[::2], QUESTION), from_runs(sweep, QUESTION)

    told = [any("seeds or batch sizes narrow" in warning for warning in result.warnings) for result in (few, all_)]
    assert told == [True, False]


def test_a_size_at_which_a_run_missed_the_target_is_marked_and_not_recommended(
    tmp_path: Path, sweep: list[Path]
) -> None:
    """Neither for the fit nor as what was held out; nor is a larger one recommended, since all above it are no better.
    A size between others that met the target only takes itself away."""
    least = dataclasses.replace(QUESTION, efficiency=0.01)
    above = [one(tmp_path, 1024, 0), one(tmp_path, 1024, 1, meets=False)]
    largest = [one(tmp_path, 4096, 0), one(tmp_path, 4096, 1, meets=False)]

    before, between = from_runs(sweep, least), from_runs([*sweep, *above], least)
    result = from_runs([*sweep, *largest], dataclasses.replace(least, efficiency=1e-6))

    assert result.critical == before.critical == between.critical
    assert result.evidence.held_out == before.evidence.held_out
    assert {row.batch for row in result.table if row.missed} == {4096}
    assert {row.batch for row in between.table if row.missed} == {1024}
    assert result.recommendation.batch == 2048
    assert between.recommendation.batch == before.recommendation.batch
    assert any("4,096 did not meet the target" in warning for warning in result.warnings)
    assert sum(point.steps is None for point in result.points) == 1


def test_a_missed_size_below_is_not_recommended_itself(tmp_path: Path, sweep: list[Path]) -> None:
    """Even where it would be the largest that is efficient enough: 256 at 56 %, and 128 at 75 %."""
    missed = [one(tmp_path, 256, 0), one(tmp_path, 256, 1, meets=False)]
    asked = dataclasses.replace(QUESTION, efficiency=0.5)

    found = [from_runs(runs, asked).recommendation.batch for runs in (sweep, [*sweep, *missed])]

    assert found == [256, 128]


def test_a_batch_above_one_that_missed_the_target_is_not_recommended_untried(tmp_path: Path) -> None:
    """The curve would give 768 a few steps, but a run at 512 has not come to the target."""
    runs = [one(tmp_path, batch, seed) for batch in (24, 96, 384) for seed in (0, 1)]

    result = from_runs([*runs, one(tmp_path, 512, meets=False)], dataclasses.replace(QUESTION, efficiency=0.01))

    assert [(row.batch, row.missed) for row in result.table if row.workers == 1][-2:] == [(512, True), (768, False)]
    assert result.recommendation.batch == 384


def test_a_batch_above_all_that_ran_is_the_curves_word_and_not_recommended(tmp_path: Path) -> None:
    """However little efficiency is asked for; the table has it, a warning names it."""
    runs = [one(tmp_path, batch, seed) for batch in (32, 64, 128, 512) for seed in (0, 1)]
    result = from_runs(runs, dataclasses.replace(QUESTION, efficiency=0.01))

    assert max(row.batch for row in result.table) > 512
    assert result.recommendation is not None
    assert result.recommendation.batch == 512
    assert any("no run has a batch above 512: steps at 1,024" in said for said in result.warnings)


def test_no_word_of_the_curve_alone_where_runs_reach_far_enough(sweep: list[Path]) -> None:
    """The largest batch of the table is one that ran."""
    assert not any("no run has a batch above" in said for said in from_runs(sweep, QUESTION).warnings)


def test_runs_of_different_recipes_are_refused(tmp_path: Path, sweep: list[Path]) -> None:
    """What differs is named."""
    with pytest.raises(PacelineError, match=r"--momentum: 0\.5, 0\.9"):
        from_runs([*sweep, one(tmp_path, 4096, momentum=0.5)], QUESTION)


def test_the_noise_of_one_run_is_an_indication_between_bounds(tmp_path: Path) -> None:
    """Half of the run at a noise scale of 100, half at 1,000; without a target no run met one."""
    result = from_noise(noisy(tmp_path / "a"), WITHOUT_TARGET)

    first, second = ((scale + 512) / (scale + 64) * 64 / 512 for scale in (100, 1000))
    row = row_of(result, 512)
    assert row.steps.value == pytest.approx(800 * (first + second) / 2)
    assert (row.steps.low, row.steps.high) == (100, 800)
    assert (result.points, result.metric, result.critical) == ([], "", None)
    assert [point.noise_scale.value for point in result.noise] == pytest.approx([100, 100, 1000, 1000])
    assert any("guessed from one run's noise" in warning for warning in result.warnings)


def test_with_a_target_the_run_counts_up_to_it(tmp_path: Path) -> None:
    """Met at step 400, the later half with its larger noise has no part in it."""
    path = noisy(tmp_path / "a", evaluations=[(200, 0.8), (400, 0.9), (800, 0.95)])

    result = from_noise(path, QUESTION)

    assert row_of(result, 64).steps.value == pytest.approx(400)
    assert row_of(result, 512).steps.value == pytest.approx(400 * (100 + 512) / (100 + 64) * 64 / 512)
    assert [(point.batch, point.steps) for point in result.points] == [(64, 400)]
    assert result.noise[-1].last == 400
    assert result.recommendation.command.endswith("--target accuracy=0.9")


def test_a_target_that_the_run_never_met_is_refused(tmp_path: Path) -> None:
    """Steps to it are not made up."""
    path = noisy(tmp_path / "a", evaluations=[(400, 0.6), (800, 0.85)])

    with pytest.raises(PacelineError, match=r"never met accuracy 0\.9") as refused:
        from_noise(path, QUESTION)

    assert "--target" in str(refused.value.hint)


def test_branches_decide_what_noise_only_indicates(tmp_path: Path) -> None:
    """With noise that says 27 % of a batch of 512, and branches that lost nothing there but at 1,024."""
    path = training(tmp_path / "a", micro=64, noise=[(n, 100.0) for n in range(10, 1001, 10)], config=CONFIG)
    branches = [Branch(run="b", batch=512, seed=1, samples=10_000, loss=0.5)]
    asked = dataclasses.replace(WITHOUT_TARGET, efficiency=0.5)
    settled = dataclasses.replace(asked, settled=Settled(512, 0.51, True), branches=branches)

    guess, result = from_noise(path, asked), from_noise(path, settled)

    assert row_of(guess, 512).statistical == pytest.approx(164 / 612)
    assert row_of(result, 512).statistical == pytest.approx(1)
    assert (guess.recommendation.batch, result.recommendation.batch) == (128, 512)
    assert result.recommendation.lr == pytest.approx(0.1 * (100 / 64 + 1) / (100 / 512 + 1))
    assert not any("--confirm" in reason for reason in result.recommendation.unless)
    assert any("above 512 are guessed" in warning for warning in result.warnings)
    assert result.branches == branches


def test_a_limit_that_branches_did_not_find_is_said(tmp_path: Path) -> None:
    """Then larger batches may be recommended, by what the noise says beyond."""
    settled = dataclasses.replace(WITHOUT_TARGET, settled=Settled(128, 0.51, False))

    result = from_noise(noisy(tmp_path / "a"), settled)

    assert result.recommendation.batch > 128
    assert any("the limit is beyond it" in warning for warning in result.warnings)


def test_times_come_with_their_interval_and_a_warning_where_they_reach_too_far(sweep: list[Path]) -> None:
    """Of a plan of speed with four workers: 128 are over 16 times as many."""
    of = [dataclasses.asdict(Coefficients(0.0, slope, 4e-3, 2e-3, 0.3, 1.0, 0.0)) for slope in (1.8e-4, 2e-4, 2.2e-4)]
    draws = [
        SpeedDraw(coefficients=each, latency_s=4e-5, bandwidth_bytes_per_s=1e9, shared_bytes_per_s=None, waits=[])
        for each in (of[0], of[2])
    ]
    times = predictor_of(msgspec.structs.replace(plans.speed(), coefficients=of[1], draws=draws))
    near, far = (dataclasses.replace(QUESTION, times=times, workers=[1, most]) for most in (64, 128))

    results = from_runs(sweep, near), from_runs(sweep, far)

    warned = [any("128 workers are far beyond the 4" in text for text in one.warnings) for one in results]
    assert warned == [False, True]
    row = row_of(results[0], 2048)
    assert row.time_s.value == pytest.approx(row.steps.value * (2048 * 2e-4 + 2e-3))
    assert row.time_s.high / row.time_s.value > max(row.steps.high / row.steps.value, 1.08)
    assert results[0].recommendation.workers is not None


def test_the_recommended_command_is_one_that_train_takes(tmp_path: Path, sweep: list[Path]) -> None:
    """With the batch and the rate that were recommended, after its own defaults and checks."""
    for result in (from_runs(sweep, QUESTION), from_noise(noisy(tmp_path / "a"), WITHOUT_TARGET)):
        advice = result.recommendation

        given = parse_flags(TrainConfig, advice.command.removeprefix("paceline train digits "), "the command", ())

        config = resolve(TrainConfig(task="digits", **given), BUILT_IN["digits"].defaults)
        assert config.global_batch == advice.batch
        assert recipe(config).optimizer.lr == pytest.approx(advice.lr, rel=1e-3)


def test_a_run_without_noise_is_refused_before_its_target_is_looked_at(tmp_path: Path) -> None:
    """Since that is what stands in the way of any plan."""
    with pytest.raises(PacelineError, match="recorded no noise"):
        from_noise(training(tmp_path / "a", evaluations=[(10, 0.5)], config=CONFIG), QUESTION)
