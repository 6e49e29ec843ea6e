"""Learning rates and lengths: pure functions, against sums in closed form and torch's schedulers."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.records.errors import PacelineError
from paceline.train.schedules import SHAPES, Duration, Schedule, rate_jump


def rates(schedule: Schedule) -> list[float]:
    """Of every step."""
    return [schedule.at(step) for step in range(schedule.total_steps)]


@pytest.mark.parametrize(("shape", "expected"), [("linear", 51.0), ("cosine", 51.0), ("constant", 95.5)])
def test_the_rates_of_a_hundred_steps_add_up_to_the_closed_form(shape: str, expected: float) -> None:
    """Warm-up (1 + ... + 10) / 10 = 5.5; then 90/2 + 1/2 for a line or half a cosine, 90 for a constant."""
    assert sum(rates(Schedule(shape, 1.0, 100, 10))) == pytest.approx(expected, abs=1e-12)


def torchs(lr: float, total: int, warmup: int, shape: str) -> list[float]:
    """The same rates from torch.optim.lr_scheduler."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    schedulers = torch.optim.lr_scheduler
    decay: torch.optim.lr_scheduler.LRScheduler
    if shape == "cosine":
        decay = schedulers.CosineAnnealingLR(optimizer, T_max=total - warmup)
    else:
        decay = schedulers.LinearLR(optimizer, 1.0, 0.0, total_iters=total - warmup)
    scheduler: torch.optim.lr_scheduler.LRScheduler = decay
    if warmup > 1:
        # torch's line starts at 1/w and would reach 1 at its w-1st step, as ours does.
        rising = schedulers.LinearLR(optimizer, 1.0 / warmup, 1.0, total_iters=warmup - 1)
        scheduler = schedulers.SequentialLR(optimizer, [rising, decay], milestones=[warmup])
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no optimizer step is made here, and SequentialLR warns of itself
        for _ in range(total):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return found


@pytest.mark.parametrize("shape", ["linear", "cosine"])
@pytest.mark.parametrize(("total", "warmup"), [(100, 10), (50, 0), (7, 3), (5, 4)])
def test_rates_are_those_of_torchs_schedulers(shape: str, total: int, warmup: int) -> None:
    """LinearLR, and LinearLR followed by CosineAnnealingLR."""
    assert rates(Schedule(shape, 0.3, total, warmup)) == pytest.approx(torchs(0.3, total, warmup, shape), abs=1e-12)


@given(
    shape=st.sampled_from(sorted(SHAPES)),
    total=st.integers(1, 500),
    warmup=st.integers(0, 600),
    lr=st.floats(0, 100),
    start=st.floats(0, 1),
    cooldown=st.integers(0, 600),
)
def test_rates_rise_to_the_peak_and_never_again(
    shape: str, total: int, warmup: int, lr: float, start: float, cooldown: int
) -> None:
    """Within 0 and the peak; up during warm-up, whose last step has the peak, as has the first after it; then down."""
    drops = (warmup + 3, warmup + 30)
    schedule = Schedule(shape, lr, total, warmup, "linear", start, cooldown, drops, 0.3)

    found = rates(schedule)

    assert all(0 <= rate <= lr * (1 + 1e-15) for rate in found)
    rising, falling = found[:warmup], found[warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert falling[:1] == [] or falling[0] == pytest.approx(lr, rel=1e-15)
    if 0 < warmup <= total:
        assert rising[-1] == pytest.approx(lr, rel=1e-15)


def test_a_step_beyond_the_end_has_the_last_rate() -> None:
    """A run whose number of steps was changed does not run out of a schedule."""
    assert Schedule("cosine", 0.1, 10).at(10_000) == pytest.approx(0.0, abs=1e-17)
    assert Schedule("linear", 0.1, 10).at(11) == 0.0


@pytest.mark.parametrize(
    ("text", "value", "in_epochs"),
    [
        ("200", 200, False),
        ("0", 0, False),
        (" 7 steps ", 7, False),
        ("1step", 1, False),
        ("3s", 3, False),
        ("2ep", 2, True),
        ("0.5ep", 0.5, True),
        ("1 epoch", 1, True),
        ("3 EPOCHS", 3, True),
        ("4e", 4, True),
        ("5.0", 5, False),
    ],
)
def test_a_length_is_steps_or_epochs(text: str, value: float, in_epochs: bool) -> None:
    """Whole steps, or any number of epochs."""
    assert Duration.parse(text, "--warmup") == Duration(value, in_epochs)


@pytest.mark.parametrize(
    "text", ["", "two", "-1", "1.5", "0.5 steps", "ep", "1e3ep", "nan", "inf", "3 weeks", "9" * 400]
)
def test_what_is_no_length_is_refused_with_both_forms(text: str) -> None:
    """Naming the flag and what was typed."""
    with pytest.raises(PacelineError) as caught:
        Duration.parse(text, "--eval-every")

    assert caught.value.what == f"--eval-every {text} is no length of training"
    assert caught.value.hint == "steps (--eval-every 200) or epochs (--eval-every 2ep)"


@given(steps=st.integers(0, 10**9), steps_per_epoch=st.integers(1, 10**6))
def test_steps_stay_steps_whatever_an_epoch_is(steps: int, steps_per_epoch: int) -> None:
    """Written and read again."""
    assert Duration.parse(f"{steps}", "--x").steps(steps_per_epoch) == steps


@given(epochs=st.integers(0, 1000), quarter=st.integers(0, 3), steps_per_epoch=st.integers(1, 10**5))
def test_epochs_are_rounded_to_whole_steps(epochs: int, quarter: int, steps_per_epoch: int) -> None:
    """Never more than half a step off."""
    steps = Duration.parse(f"{epochs + quarter / 4}ep", "--x").steps(steps_per_epoch)

    assert abs(steps - (epochs + quarter / 4) * steps_per_epoch) <= 0.5


def test_the_cosine_is_the_mirror_image_of_itself() -> None:
    """Rates at equal distances from the middle of the run add up to the peak."""
    schedule = Schedule("cosine", 1.0, 100)

    assert [schedule.at(s) + schedule.at(100 - s) for s in range(101)] == pytest.approx([1.0] * 101, abs=1e-12)


def test_wsd_holds_the_peak_and_then_falls_by_one_minus_the_root() -> None:
    """The last fifth of a hundred steps; the reference is the formula."""
    found = rates(Schedule("wsd", 0.5, 100, 10, cooldown_steps=20))

    assert found[10:80] == [0.5] * 70
    assert found[80:] == pytest.approx([0.5 * (1 - math.sqrt(k / 20)) for k in range(20)], abs=1e-15)


def test_a_cooldown_that_is_longer_than_the_rest_begins_after_the_warm_up() -> None:
    """It never cuts the warm-up short."""
    found = rates(Schedule("wsd", 1.0, 10, 4, cooldown_steps=50))

    assert found[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert found[5] == pytest.approx(1 - math.sqrt(1 / 6))


def test_step_drops_by_its_factor_as_torchs_multi_step_does() -> None:
    """MultiStepLR, without warm-up."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9], gamma=0.2)
    expected = []
    for _ in range(12):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()

    found = rates(Schedule("step", 0.3, 12, drops=(5, 9), drop_factor=0.2))

    assert found == pytest.approx(expected, rel=1e-12)


def test_a_constant_warm_up_holds_the_lower_rate_and_then_jumps() -> None:
    """Goyal et al. 2017, section 2.2."""
    assert rates(Schedule("constant", 0.8, 5, 3, "constant", 0.125)) == [0.1, 0.1, 0.1, 0.8, 0.8]


def test_a_gradual_warm_up_rises_in_equal_parts_from_the_base_rate() -> None:
    """From lr/k at k = 8, a step at a time."""
    assert rates(Schedule("constant", 0.8, 5, 4, "linear", 0.125)) == pytest.approx(
        [0.1 + 0.7 * part for part in (0.25, 0.5, 0.75, 1.0)] + [0.8]
    )


@pytest.mark.parametrize(
    ("shape", "more", "step", "jumps"),
    [
        ("constant", {}, 99, False),
        ("cosine", {}, 99, True),
        ("cosine", {}, 30, True),
        ("linear", {}, 60, True),
        ("wsd", {"cooldown_steps": 20}, 70, False),  # in the stable part the longer run has the same rate
        ("wsd", {"cooldown_steps": 20}, 95, True),
        ("step", {"drops": (50,)}, 40, False),
        ("step", {"drops": (50,)}, 60, True),
        ("cosine", {"warmup_steps": 40}, 30, False),
    ],
)
def test_a_longer_run_names_both_rates_exactly_where_its_rate_jumps(shape, more, step, jumps) -> None:
    """A run of 100 steps, resumed after `step` of them as one of 200."""
    own = Schedule(shape, 0.5, 100, **more)
    longer = {name: 2 * value if name != "drops" else (100,) for name, value in more.items() if name != "warmup_steps"}
    after = Schedule(shape, 0.5, 200, **(more | longer))

    note = rate_jump(after, own.at(step - 1), step)

    assert bool(note) == jumps
    assert rate_jump(own, own.at(step - 1), step) == ""
    if jumps:
        assert f"had {own.at(step - 1):.4g}" in note
        assert f"has {after.at(step):.4g}" in note
