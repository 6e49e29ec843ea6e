"""Scaling rules against exact recursions and simulations of a noisy quadratic, with answers computed elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paceline.parallel.placement import RankEnv
from paceline.records.errors import PacelineError
from paceline.tasks.table import Defaults
from paceline.train.batch_plan import Plan, grow
from paceline.train.config import TrainConfig
from paceline.train.optim.build import build_optimizer
from paceline.train.optim.table import OPTIMIZERS, Settings
from paceline.train.resolve import plan_training, recipe, resolve
from paceline.train.rules import RULES, keep_horizon, keep_momentum, scale

BASE_BATCH, BASE_LR, EXAMPLES = 8, 0.01, 4096


def expected_loss(rule: str, k: int) -> float:
    """E[h theta^2 / 2] after one pass: m' = (1 - eta h)^2 m + eta^2 s^2 / B, with h = s = m_0 = 1."""
    lr = scale(rule, Settings(BASE_LR), k).lr
    second_moment = 1.0
    for _ in range(EXAMPLES // (BASE_BATCH * k)):
        second_moment = (1 - lr) ** 2 * second_moment + lr**2 / (BASE_BATCH * k)
    return second_moment / 2


@pytest.mark.parametrize(
    ("rule", "k", "expected", "digits"),
    [
        ("none", 1, 3.3102e-4, 5e-9),
        ("linear", 8, 3.371e-4, 5e-8),
        ("linear", 32, 3.742e-4, 5e-8),
        ("linear", 64, 4.596e-4, 5e-8),
        ("linear", 128, 8.869e-4, 5e-8),
        ("linear", 190, 0.3302, 5e-5),
        ("sqrt", 8, 1.28e-2, 5e-5),
        ("none", 8, 0.138, 5e-4),
    ],
)
def test_one_pass_over_a_noisy_quadratic_ends_where_it_was_computed(
    rule: str, k: int, expected: float, digits: float
) -> None:
    """Same examples, k times the batch: the linear rule nearly keeps the loss until eta h nears 2; others do not."""
    assert abs(expected_loss(rule, k) - expected) <= digits


def adam(hyper: Settings, batch: int, steps: int, *, replicas: int = 4000) -> np.ndarray:
    """Plain Adam on h theta^2 / 2 from theta = 1 with gradient noise of deviation 10 / sqrt(batch), many at once."""
    noise = np.random.default_rng(0)
    theta, first, second = np.ones(replicas), np.zeros(replicas), np.zeros(replicas)
    beta1, beta2 = hyper.betas
    for step in range(1, steps + 1):
        gradient = theta + 10 / math.sqrt(batch) * noise.standard_normal(replicas)
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        bias1, bias2 = 1 - beta1**step, 1 - beta2**step
        theta = theta - hyper.lr * (first / bias1) / (np.sqrt(second / bias2) + hyper.eps)
    return theta


MOMENTS = {
    4: {"adam-sde": (0.546, 0.056), "linear": (0.285, 0.093), "none": (0.740, 0.031)},
    8: {"adam-sde": (0.563, 0.053), "linear": (0.163, 0.114), "none": (0.818, 0.021)},
}
"""Mean and deviation at the end, by growth of the batch and rule, as they were computed elsewhere."""


@pytest.mark.parametrize("k", MOMENTS)
def test_adam_ends_at_the_same_place_under_its_rule_and_at_another_under_the_linear_one(k: int) -> None:
    """Where noise dominates; k times the batch and a k-th of 1,600 steps (Malladi et al. 2022)."""
    base = Settings(2e-3)
    start = adam(base, 4, 1600)

    ends = {rule: adam(scale(rule, base, k), 4 * k, 1600 // k) for rule in MOMENTS[k]}

    found = {rule: (float(end.mean()), float(end.std())) for rule, end in ends.items()}
    assert (float(start.mean()), float(start.std())) == pytest.approx((0.531, 0.059), abs=0.005)
    assert abs(found["adam-sde"][0] - start.mean()) < 0.04 < 0.2 < abs(found["linear"][0] - start.mean())
    for rule, (mean, deviation) in MOMENTS[k].items():
        assert found[rule] == (pytest.approx(mean, abs=0.006), pytest.approx(deviation, abs=0.002)), rule


@pytest.mark.parametrize(("k", "mean"), [(4, 0.542), (8, 0.556)])
def test_the_root_alone_ends_near_there_too(k: int, mean: float) -> None:
    """What the Adam rule does to betas besides matters for the transient only."""
    base = Settings(2e-3)

    found = adam(scale("sqrt", base, k), 4 * k, 1600 // k)

    assert float(found.mean()) == pytest.approx(mean, abs=0.005)


def test_the_adam_rule_changes_rate_betas_eps_and_decay_together() -> None:
    """By hand at k = 4."""
    found = scale("adam-sde", Settings(1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1), 4, decoupled=True)

    assert found.lr == pytest.approx(2e-3)
    assert found.betas == pytest.approx((0.6, 0.96))
    assert found.eps == pytest.approx(5e-9)
    assert found.weight_decay == pytest.approx(0.2)


@pytest.mark.parametrize(("betas", "limit"), [((0.9, 0.999), 10), ((0.95, 0.999), 20), ((0.9, 0.8), 5)])
def test_the_adam_rule_is_refused_from_its_limit_on(betas: tuple[float, float], limit: int) -> None:
    """At k = 1 / (1 - beta) the average would have no memory left; the legal range is named."""
    scale("adam-sde", Settings(1e-3, betas=betas), limit - 0.01)

    with pytest.raises(PacelineError) as caught:
        scale("adam-sde", Settings(1e-3, betas=betas), limit)

    assert f"k < {limit}" in caught.value.why
    assert f"{limit} times --base-batch" in caught.value.hint


@given(rule=st.sampled_from(sorted(RULES)), k=st.floats(0.01, 9), lr=st.floats(1e-6, 10), decay=st.floats(0, 1))
def test_rules_keep_the_decay_of_an_epoch(rule: str, k: float, lr: float, decay: float) -> None:
    """Decoupled: rate x decay x steps stays, but for `none`; coupled decay is part of the loss and stays itself."""
    apart = scale(rule, Settings(lr, weight_decay=decay), k, decoupled=True)
    within = scale(rule, Settings(lr, weight_decay=decay), k)

    assert within.weight_decay == decay
    if rule != "none":
        assert apart.lr * apart.weight_decay / k == pytest.approx(lr * decay, rel=1e-9)


@given(rule=st.sampled_from(sorted(RULES)), k=st.floats(0.1, 2.9), again=st.floats(0.1, 3))
def test_scaling_twice_is_scaling_once_by_the_product(rule: str, k: float, again: float) -> None:
    """All rules are powers, so a base batch may be stated anywhere on the way."""
    base = Settings(0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01)

    twice, once = (
        scale(rule, scale(rule, base, k, decoupled=True), again, decoupled=True),
        scale(rule, base, k * again, decoupled=True),
    )

    assert (twice.lr, *twice.betas, twice.eps, twice.weight_decay) == pytest.approx(
        (once.lr, *once.betas, once.eps, once.weight_decay), rel=1e-9
    )


def test_averages_keep_their_horizon_in_samples() -> None:
    """k averaging steps of the base batch forget as much as one of k times the batch."""
    assert keep_horizon(0.999, 8) == pytest.approx(0.999**8)
    assert 1 - keep_momentum(0.1, 4) == pytest.approx(0.9**4)
    assert keep_momentum(0.1, 1) == pytest.approx(0.1)


def test_a_jump_of_the_rate_needs_no_correction_of_the_momentum() -> None:
    """The buffer holds gradients, not steps: 0.1 to 1 at step 50 moves by 9.95 at once; the other form by 1.90."""
    model = nn.Linear(1, 1, bias=False).double()
    optimizer = build_optimizer("sgd", model, Settings(lr=0.1, momentum=0.9))
    moved = []
    for step in range(60):
        optimizer.param_groups[0]["lr"] = 0.1 if step < 50 else 1.0
        model.weight.grad = torch.ones_like(model.weight)
        before = model.weight.item()
        optimizer.step()
        moved.append(before - model.weight.item())

    assert moved[50] == pytest.approx(9.95, abs=0.005)
    assert moved[59] == pytest.approx(9.98, abs=0.005)


def test_a_larger_batch_and_a_lower_rate_leave_the_same_noise() -> None:
    """Stationary variance eta s^2 / (B h (2 - eta h)): eta / q and B q agree to O(eta h) (Smith et al. 2018)."""

    def stationary(lr: float, batch: float) -> float:
        second_moment = 1.0
        for _ in range(200_000):
            second_moment = (1 - lr) ** 2 * second_moment + lr**2 / batch
        return second_moment

    lr, batch, q = 0.01, 8, 5

    assert stationary(lr / q, batch) == pytest.approx(stationary(lr, batch * q), rel=lr)


@pytest.mark.parametrize(("momentum", "expected"), [(0.9, 0.513514), (0.0, 0.0526316)])
def test_the_noise_around_a_minimum_is_that_of_a_heavy_ball(momentum: float, expected: float) -> None:
    """Our SGD on h w^2 / 2 with unit noise, rate 0.1: its covariance, iterated to rest, in closed form.

    eta s^2 (1 + m) / (B h (1 - m) (2 (1 + m) - eta h)), h = s = B = 1; the matrix is read off the optimizer's steps.
    """

    def one_step(weight: float, buffer: float, noise: float) -> np.ndarray:
        model = nn.Linear(1, 1, bias=False).double()
        model.weight.data.fill_(weight)
        optimizer = build_optimizer("sgd", model, Settings(lr=0.1, momentum=momentum))
        if momentum:
            optimizer.state[model.weight]["momentum_buffer"] = torch.full_like(model.weight, buffer)
        model.weight.grad = model.weight.detach() + noise
        optimizer.step()
        after = optimizer.state[model.weight]["momentum_buffer"].item() if momentum else 0.0
        return np.array([model.weight.item(), after])

    matrix = np.stack([one_step(1, 0, 0), one_step(0, 1, 0)], axis=1)
    push = one_step(0, 0, 1)
    covariance = np.zeros((2, 2))
    for _ in range(2000):
        covariance = matrix @ covariance @ matrix.T + np.outer(push, push)

    assert covariance[0, 0] == pytest.approx(expected, rel=2e-6)


def config(**given: object) -> TrainConfig:
    """Resolved, of a task whose own batch is 128."""
    return resolve(TrainConfig("t", **given), Defaults(128, 10, 0.05))  # type: ignore[arg-type]


def test_a_run_uses_the_scaled_rate_of_a_stated_base() -> None:
    """4096 against 128 is 32 times: linearly 1.6; momentum and coupled decay stay."""
    found = recipe(config(global_batch=4096, lr_rule="linear", weight_decay=5e-4, momentum=0.9, average="ema"))

    assert found.growth == 32
    assert found.optimizer.lr == pytest.approx(1.6)
    assert (found.optimizer.momentum, found.optimizer.weight_decay) == (0.9, 5e-4)
    assert found.ema_decay == pytest.approx(0.999**32)
    assert found.bn_momentum(0.1) == pytest.approx(1 - 0.9**32)


def test_without_a_rule_nothing_is_scaled() -> None:
    """Neither the rate nor the averages."""
    found = recipe(config(global_batch=4096))

    assert (found.optimizer.lr, found.ema_decay, found.bn_momentum(0.1)) == (0.05, 0.999, 0.1)


def test_legw_multiplies_the_epochs_of_warm_up() -> None:
    """And takes the root for the rate."""
    found = recipe(config(global_batch=512, base_batch=128, lr_rule="legw"))

    assert (found.warmup, found.optimizer.lr) == (4, pytest.approx(0.1))


@pytest.mark.parametrize(("accumulate", "expected"), [(1, 1 - 0.9**32), (4, 1 - 0.9**8), (32, 0.1), (64, 1 - 0.9**0.5)])
def test_running_statistics_keep_their_horizon_where_batches_are_accumulated(accumulate: int, expected: float) -> None:
    """They move once a micro-batch: 32 of the base batch's size count as 32 steps. An average of weights moves once."""
    found = recipe(config(global_batch=4096, accumulate=accumulate, lr_rule="linear", average="ema"))

    assert found.bn_momentum(0.1) == pytest.approx(expected)
    assert found.ema_decay == pytest.approx(0.999**32)


def test_running_statistics_keep_their_horizon_where_the_batch_grows() -> None:
    """Micro-batches stay as large as the first ones, for which the momentum was made."""
    grown = grow(Plan(60_000, 256, 2, 0, 1, 0), 8, (0.25, 0.5, 0.75), 0.25, 60_000)[0]
    found = recipe(config(global_batch=256, accumulate=2, lr_rule="linear"))

    assert [stage.global_batch for stage in grown] == [1024, 4096, 16384]
    for stage in grown:
        assert keep_momentum(0.1, stage.global_batch / stage.accumulation / 128) == found.bn_momentum(0.1)


STANDS_APART = {"sgd": False, "lars": False, "adamw": True, "muon": True, "lamb": True, "novograd": True}
"""Whether an optimizer's decay is no part of the gradient that it takes for the loss's."""


@pytest.mark.parametrize("rule", ["linear", "sqrt", "legw"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_decay_of_an_epoch_stays_whatever_the_optimizer(name: str, rule: str) -> None:
    """rate x decay x steps, where weights shrink in proportion to it; as a part of the loss the decay itself stays."""
    found = recipe(config(optimizer=name, lr=0.01, global_batch=128 * 16, lr_rule=rule, weight_decay=0.02)).optimizer

    if STANDS_APART[name]:
        assert found.lr * found.weight_decay / 16 == pytest.approx(0.01 * 0.02)
    else:
        assert found.weight_decay == 0.02


def test_a_batch_beyond_the_training_set_counts_as_the_set() -> None:
    """There is none such: rate, averages and statistics are of the batch that is really taken."""
    found = recipe(config(global_batch=100_000, lr_rule="linear", average="ema"), 1280)

    assert (found.growth, found.micro_growth) == (10, 10)
    assert found.optimizer.lr == pytest.approx(0.5)
    assert found.ema_decay == pytest.approx(0.999**10)


def test_a_constant_warm_up_holds_the_base_rate() -> None:
    """And is refused where there is none that is lower."""
    found = recipe(config(global_batch=1024, lr_rule="linear", warmup="5", warmup_shape="constant"))

    assert found.warmup_from == pytest.approx(1 / 8)
    with pytest.raises(PacelineError, match="a constant warm-up needs a rate to hold"):
        recipe(config(warmup="5", warmup_shape="constant"))


def test_the_adam_rule_is_refused_for_other_optimizers() -> None:
    """It was derived for Adam's equations."""
    with pytest.raises(PacelineError, match="--lr-rule adam-sde does not hold for sgd"):
        config(lr_rule="adam-sde")


def test_keeping_the_updates_is_as_many_steps_as_the_base_batch_would_take() -> None:
    """1,000 samples in ceil(1000 / 128) = 8 steps an epoch, ten epochs; whatever the batch."""

    def steps(**given: object) -> int:
        asked = TrainConfig("t", **given)  # type: ignore[arg-type]
        return plan_training(asked, Defaults(128, 10, 0.05), 1000, RankEnv(0, 0, 1, 1, 1)).schedule.total_steps

    assert steps(global_batch=512, keep_updates=True) == 80
    assert steps(global_batch=512) == 20
    assert steps(steps=7) == 7
