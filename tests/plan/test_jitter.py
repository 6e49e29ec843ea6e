"""Waiting for the slowest: what was drawn is found, more workers follow a tail, and a record keeps it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.plan.jitter import Jitter


def exponential(count, seed=0):
    """Times with an exponential part of a tenth."""
    return 1 + np.random.default_rng(seed).exponential(0.1, size=count)


def test_jitter_is_the_slowest_of_many():
    """Against draws: the median of the largest of k, measured where there are steps enough, from a tail beyond."""
    jitter = Jitter(exponential(4_000))

    for workers in (2, 3, 8, 64, 500):
        drawn = np.median(exponential((4_000, workers), seed=1).max(axis=1))
        assert jitter(workers) == pytest.approx(drawn - (1 + 0.1 * math.log(2)), rel=0.1)
    few = Jitter(exponential(200, seed=2))
    assert few.facts.seen < 64
    assert few(1_000) == pytest.approx(0.1 * math.log(1_000), rel=0.5)
    assert jitter(1) == Jitter()(64) == 0


@pytest.mark.parametrize("shape", [-0.2, 0.0, 0.3])
def test_the_tail_is_a_generalised_pareto_distributions(shape):
    """Against its own quantiles, from 20,000 steps, at 16 times the workers that these show."""
    chance = np.random.default_rng(3).random(20_000)
    excess = -np.log(chance) if shape == 0 else (chance**-shape - 1) / shape
    workers = 32_768
    level = 1 - 0.5 ** (1 / workers)
    expected = -math.log(level) if shape == 0 else (level**-shape - 1) / shape
    median = math.log(2) if shape == 0 else (0.5**-shape - 1) / shape

    found = Jitter(1 + excess)

    assert found.facts.seen < workers / 10
    assert found(workers) == pytest.approx(expected - median, rel=0.25)


def test_few_steps_have_no_tail_and_fewer_say_nothing():
    """40 steps show five workers, and more wait as long as these; 19 steps show nothing."""
    times = exponential(40)
    some, none = Jitter(times), Jitter(times[:19])

    assert (some.facts.seen, some.facts.tail) == (5, False)
    assert some(8) == some(1_000) == pytest.approx(np.quantile(times, 0.5**0.2) - np.median(times))
    assert none.facts.waits == []
    assert none(1_000) == 0


def test_more_workers_never_wait_less():
    """Neither at the joint between steps and tail nor beyond."""
    for seed in range(20):
        jitter = Jitter(exponential(60, seed))

        waits = [jitter(workers) for workers in range(1, 300)]

        assert waits == sorted(waits)


def test_a_record_says_the_same():
    """At all numbers of workers; and without one there is no jitter."""
    jitter = Jitter(exponential(120))

    again = Jitter(facts=jitter.facts)

    assert [again(workers) for workers in range(1, 200)] == [jitter(workers) for workers in range(1, 200)]
    assert again.facts == jitter.facts
    assert Jitter(facts=None)(64) == 0


def test_drawn_anew_it_scatters_about_what_was_measured():
    """By more in the tail than among what was seen."""
    jitter = Jitter(exponential(150))
    generator = np.random.default_rng(0)

    drawn = [jitter.redrawn(generator) for _ in range(60)]

    spread = {workers: np.std([one(workers) for one in drawn]) for workers in (2, 256)}
    assert 0 < spread[2] < spread[256]
    assert np.median([one(2) for one in drawn]) == pytest.approx(jitter(2), rel=0.2)
    nothing = Jitter()
    assert nothing.redrawn(generator) is nothing
