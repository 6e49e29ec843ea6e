"""Learning curves: the truth lies in what is stated, and what is doubtful is said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from paceline.plan.compute import Device
from paceline.plan.data_config import DataConfig, check
from paceline.plan.data_needs import Question, learn
from paceline.records.errors import Exit, PacelineError
from paceline.records.plan_results import CurvePoint, DataResult

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000)
RECIPE = {"batch": 100, "epochs": 5.0, "length": "steps"}
STEPS = 800


def truth(size: float, scale: float = 3.0, exponent: float = 0.35, floor: float = 0.06) -> float:
    """The formula of science, written down again."""
    return floor + scale * size**-exponent


def points(errors: dict[int, list[float | None]], steps: int = STEPS) -> list[CurvePoint]:
    """Trainings, seed by seed."""
    return [
        CurvePoint(run=f"runs/samples-{size}-seed-{seed}", samples=size, seed=seed, error=error, steps=steps)
        for size, each in errors.items()
        for seed, error in enumerate(each)
    ]


def noisy(rng: np.random.Generator, noise: float, *shape: float, sizes: tuple[int, ...] = SIZES) -> list[CurvePoint]:
    """Three seeds a size around a curve."""
    return points({m: [truth(m, *shape) * (1 + noise * rng.standard_normal()) for _ in range(3)] for m in sizes})


def plan(of: list[CurvePoint], **changes: Any) -> DataResult:
    """Without a question but how it goes on."""
    return learn(of, Question(**({"task": "t", "metric": "error"} | RECIPE | changes)))


def row(result: DataResult, samples: int) -> Any:
    """At a size."""
    return next(each for each in result.rows if each.samples == samples)


def test_the_truth_at_four_times_the_data_lies_in_the_stated_interval() -> None:
    """In at least 17 of 20 cases of known truth: 85 %, where 90 % are stated."""
    rng = np.random.default_rng(20_260_311)
    inside, widths = 0, []
    for _ in range(20):
        exponent, floor = rng.uniform(0.2, 0.6), rng.choice([0.0, rng.uniform(0.01, 0.15)])
        largest = int(np.exp(rng.uniform(math.log(2_000), math.log(100_000))))
        sizes = tuple(largest // 2**power for power in (4, 3, 2, 1, 0))
        shape = (rng.uniform(0.1, 0.5) * sizes[0] ** exponent, exponent, floor)
        result = plan(noisy(rng, rng.uniform(0.01, 0.05), *shape, sizes=sizes))

        error = row(result, 4 * largest).error

        inside += error.low <= truth(4 * largest, *shape) <= error.high
        widths.append(error.high / error.low - 1)

    assert inside >= 17, f"{inside} of 20"
    assert np.median(widths) < 1.0  # an interval that holds everything says nothing


def test_without_noise_the_curve_itself_is_found() -> None:
    """Scale, exponent and floor; the error at twice to eight times the data; and how many samples a target needs."""
    result = plan(points({size: [truth(size)] * 3 for size in SIZES}), targets=[truth(50_000)])

    assert (result.scale, result.exponent, result.floor) == pytest.approx((3.0, 0.35, 0.06), rel=1e-3)
    assert [each.samples for each in result.rows] == [*SIZES, 32_000, 64_000, 128_000]
    for each in result.rows:
        assert each.error.value == pytest.approx(truth(each.samples), rel=1e-3)
    assert [each.measured for each in result.rows][-4:] == [pytest.approx(truth(16_000)), None, None, None]
    assert [each.beyond for each in result.rows][-4:] == [1, 2, 4, 8]
    assert result.needed[0].samples.value == pytest.approx(50_000, rel=0.01)


def test_computing_is_what_a_hand_makes_of_steps_and_epochs() -> None:
    """3 x forward x samples used: steps x batch where it was measured, the largest size's epochs beyond."""
    device = Device("d", peak=1e12, precision="fp32", utilisation=0.25, price=2.0)
    made = points({size: [truth(size)] * 3 for size in SIZES})

    result = plan(made, forward_flop=1e6, device=device, targets=[truth(64_000)])

    assert row(result, 1_000).flop == row(result, 16_000).flop == 3 * 1e6 * STEPS * 100 == 3 * 1e6 * 5 * 16_000
    ahead = row(result, 64_000)
    assert ahead.flop == 3 * 1e6 * 5 * 64_000
    assert ahead.pfs_days == pytest.approx(ahead.flop / 8.64e19)
    assert ahead.device_hours == pytest.approx(ahead.flop / 0.25e12 / 3600)
    assert ahead.cost == pytest.approx(2 * ahead.device_hours)
    needed = result.needed[0]
    assert needed.flop.value == pytest.approx(3 * 1e6 * 5 * needed.samples.value)
    assert needed.cost.value == pytest.approx(2 * needed.flop.value / 0.25e12 / 3600)


def test_a_size_below_the_batch_uses_what_it_has() -> None:
    """Each step takes all of its samples, not a batch that it cannot fill; and it is said."""
    sizes = (50, 250, 1_000, 4_000)

    result = plan(points({size: [truth(size)] * 2 for size in sizes}, steps=40), forward_flop=1.0)

    assert row(result, 50).flop == 3 * 40 * 50
    assert row(result, 250).flop == pytest.approx(3 * 40 * 250 / 3)
    assert any("below 100 samples" in note for note in result.evidence.notes)


def test_without_a_price_or_a_device_or_a_count_nothing_is_made_up() -> None:
    """What is not known is null."""
    made = points({size: [truth(size)] * 3 for size in SIZES})
    device = Device("d", peak=1e12, precision="fp32", utilisation=0.25)

    bare = plan(made, targets=[0.2]).needed[0]
    counted = plan(made, targets=[0.2], forward_flop=1.0).needed[0]
    unpriced = plan(made, targets=[0.2], forward_flop=1.0, device=device).needed[0]

    assert (bare.flop, bare.device_hours, bare.cost) == (None, None, None)
    assert counted.flop is not None
    assert counted.device_hours is None
    assert unpriced.device_hours is not None
    assert unpriced.cost is None


def test_a_target_below_the_floor_is_out_of_reach() -> None:
    """No number of samples, no computing; and a sentence that says why."""
    result = plan(noisy(np.random.default_rng(0), 0.01), targets=[0.02], forward_flop=1.0)

    needed = result.needed[0]

    assert needed.samples.value is None
    assert needed.flop.value is None
    assert any("below the floor" in warning for warning in result.warnings)


def test_a_target_near_a_doubtful_floor_may_be_out_of_reach() -> None:
    """It has a value and no upper end, and the warning says so."""
    made = noisy(np.random.default_rng(1), 0.04)

    result = plan(made, targets=[1.1 * plan(made).floor])

    needed = result.needed[0]

    assert needed.samples.value is not None
    assert needed.samples.high is None
    assert any("may be out of reach" in warning for warning in result.warnings)


def test_a_target_that_every_size_reaches_is_said_to_be() -> None:
    """The smallest size is an upper end, not an answer."""
    result = plan(noisy(np.random.default_rng(0), 0.01), targets=[0.9])

    assert result.needed[0].samples.value == 1_000
    assert any("smallest size already" in warning for warning in result.warnings)


def test_the_largest_size_is_held_out_and_judged() -> None:
    """On a curve that follows the formula the prediction is near; on one that breaks it is far, and a warning."""
    good = plan(noisy(np.random.default_rng(3), 0.01))
    broken = {size: [truth(size) * (1 + 0.001 * seed) for seed in range(3)] for size in SIZES}
    broken[16_000] = [2 * truth(16_000)] * 3

    bad = plan(points(broken))

    assert abs(good.evidence.held_out[0].error) < 0.05
    assert good.evidence.held_out[0].what == "16,000 samples, 3 runs"
    assert not any("outside the interval" in warning for warning in good.warnings)
    assert bad.evidence.held_out[0].error < -0.3
    assert any("outside the interval" in warning for warning in bad.warnings)


def test_four_sizes_leave_none_to_hold_out() -> None:
    """Three numbers are fitted to the three that would remain."""
    result = plan(noisy(np.random.default_rng(0), 0.01, sizes=SIZES[:4]))

    assert result.evidence.held_out == []


def test_far_predictions_are_doubted_unless_the_floor_is_seen() -> None:
    """A floor that the runs prove carries the curve on; where it may be nothing, the form does."""
    seen = plan(noisy(np.random.default_rng(0), 0.002, 50.0, 0.9, 0.2))
    unseen = plan(noisy(np.random.default_rng(0), 0.02, 3.0, 0.35, 0.0), targets=[truth(100_000, 3.0, 0.35, 0.0)])

    assert not any("beyond 64,000 samples" in warning for warning in seen.warnings)
    assert any("beyond 64,000 samples" in warning and "a target needs" in warning for warning in unseen.warnings)


def test_diverged_trainings_are_left_out_and_counted() -> None:
    """They are among the points with a null, and a warning says how many; when all are, it is an error."""
    made = {size: [truth(size), truth(size) * 1.01, None] for size in SIZES}

    result = plan(points(made))

    assert sum(point.error is None for point in result.points) == len(SIZES)
    assert any("5 of 15 trainings diverged" in warning for warning in result.warnings)
    with pytest.raises(PacelineError, match="no training has a result") as refused:
        plan(points({size: [None] for size in SIZES}))
    assert refused.value.exit_code == Exit.DIVERGED


def test_sizes_that_disagree_with_the_formula_are_said_to() -> None:
    """Seeds that agree to the digit around a curve with a wave in it."""
    made = {
        size: [truth(size) * (1 + 0.1 * (-1) ** i) * (1 + 1e-4 * s) for s in range(3)] for i, size in enumerate(SIZES)
    }

    result = plan(points(made))

    assert any("do not follow a power law" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("length", "used"),
    [
        ("steps", [5 * 16_000, 5 * 16_000, 800 * 50, 5 * 32_000]),
        ("epochs", [5 * 16_000, 5 * 4_000, 5 * 50, 5 * 32_000]),
    ],
)
def test_a_target_inside_the_runs_costs_what_a_run_there_costs(length: str, used: list[int]) -> None:
    """At the largest size, at a quarter of it, below the batch, and at twice the largest: with equal steps a small size
    takes as many as the largest, with equal epochs its own; and more samples take as many epochs either way."""
    sizes = (50, *SIZES)
    made = points({size: [truth(size)] * 3 for size in sizes})
    targets = [truth(size) for size in (16_000, 4_000, 50.001, 32_000)]

    needed = plan(made, length=length, targets=targets, forward_flop=1.0).needed

    assert [each.flop.value for each in needed] == pytest.approx([3 * samples for samples in used], rel=0.01)
    for each in needed:
        assert each.flop.low <= each.flop.value <= each.flop.high


def test_a_size_at_which_a_run_made_no_error_is_left_out_and_said_to_be() -> None:
    """All of its runs, since the others alone would make it look worse; the rest is fitted as if it had not been."""
    made = {size: [truth(size), truth(size) * 1.01] for size in SIZES}
    without = plan(points({size: made[size] for size in SIZES[:4]}))

    result = plan(points(made | {16_000: [0.0, 0.001]}))

    assert (result.scale, result.exponent, result.floor) == (without.scale, without.exponent, without.floor)
    assert [each.samples for each in result.rows] == [*SIZES[:4], 16_000, 32_000, 64_000]
    assert row(result, 16_000).measured is None
    assert len(result.points) == 10
    assert any("the runs on 16,000 samples are left out" in warning for warning in result.warnings)
    assert not any("left out" in warning for warning in without.warnings)


@pytest.mark.parametrize(
    ("metric", "last", "why", "hint", "code"),
    [
        ("error", 0.0, "at 2 sizes a run came to error 0", "--metric loss needs no new training", Exit.USAGE),
        ("loss", -1.0, "at 2 sizes a run came to loss 0 or below", "smaller --fractions", Exit.USAGE),
        ("loss", None, "at 2 sizes all runs diverged", "--lr", Exit.DIVERGED),
    ],
)
def test_fewer_than_four_sizes_are_refused_with_what_can_be_done_here(
    metric: str, last: float | None, why: str, hint: str, code: Exit
) -> None:
    """How many are left, why the others are not among them, and a flag of this command."""
    made: dict[int, list[float | None]] = {size: [truth(size)] * 2 for size in SIZES[:3]}
    made |= {size: [last, last] for size in SIZES[3:]}

    with pytest.raises(PacelineError, match="3 sizes can be fitted") as refused:
        plan(points(made), metric=metric)

    assert why in refused.value.why
    assert hint in refused.value.hint
    assert refused.value.exit_code == code


def test_a_few_scattered_repeats_are_no_sign_against_the_formula() -> None:
    """Two repeats with five sizes: as many degrees of freedom as where sizes disagree with the curve."""
    made: dict[int, list[float | None]] = {size: [truth(size)] for size in SIZES}
    made |= {size: [truth(size) * 0.95, truth(size) * 1.05] for size in (SIZES[0], SIZES[-1])}

    result = plan(points(made))

    assert not any("do not follow" in warning for warning in result.warnings)


def test_the_same_epochs_are_called_what_they_are() -> None:
    """The notes say that small sizes had few steps."""

    result = plan(noisy(np.random.default_rng(0), 0.01), length="epochs")

    assert any("few steps" in note for note in result.evidence.notes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fractions": "1/2,1"}, "too few"),
        ({"fractions": "1/8,1/4,1/2,1,2"}, "holds 2"),
        ({"fractions": "1/8,,1/4,1/2,1"}, "holds nothing"),
        ({"fractions": "1/0,1/4,1/2,1"}, "holds 1/0"),
        ({"fractions": "0.5,1/2,2/4,1"}, "too few"),
        ({"length": "days"}, "--length days"),
        ({"seeds": 0}, "--seeds 0"),
        ({"target": "accuracy=1.2"}, "out of range"),
        ({"target": "accuracy"}, "is not a target"),
        ({"target": "accuracy=0.9,loss=0.1"}, "not of the metric accuracy"),
        ({"metric": "loss", "target": "accuracy=0.9"}, "not of the metric loss"),
        ({"peak": 40.0}, "--peak and --utilisation belong together"),
        ({"utilisation": 0.4}, "--peak and --utilisation belong together"),
        ({"price": 2.0}, "--price needs"),
        ({"peak": 40.0, "utilisation": 1.5}, "--utilisation 1.5"),
        ({"holdout": -1}, "--holdout -1"),
        ({"format": "xml"}, "--format xml"),
        ({"task": "digit"}, "unknown task digit"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    """Each with the flag and the legal values."""
    with pytest.raises(PacelineError, match=message) as refused:
        check(DataConfig(**({"task": "digits"} | given)))

    assert refused.value.exit_code == Exit.USAGE
    assert refused.value.hint


def test_what_can_be_right_is_taken() -> None:
    """Fractions in any order and form; several targets of one metric."""
    config = DataConfig(task="digits", fractions="1, 0.25,1/2,1/8 ,0.5", target="loss=0.5,loss=0.4")

    check(config)

    assert [float(part) for part in config.parts] == [0.125, 0.25, 0.5, 1.0]
    assert config.asked_metric == "loss"
    assert [target.value for target in config.targets] == [0.5, 0.4]
