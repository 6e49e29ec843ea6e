"""The model of a step: numbers that were computed by hand, and laws that its parts keep."""

from __future__ import annotations

import pytest

from paceline.plan.collectives import Link, Network
from paceline.plan.jitter import Jitter
from paceline.plan.step_time import Coefficients, Setting, StepTime

NETWORK = Network(Link(1e-3, 200e6))
SIZE = 8e6
TRUTH = Coefficients(fixed=0.004, slope=0.0008, floor=0.02, rest=0.003, late=0.25, slower=1.2, crowding=0.1)
HANDY = Coefficients(fixed=0.010, slope=0.001, floor=0.020, rest=0.004, late=0.5, slower=1.0, crowding=0.1, bound=0.5)


def true_model(network=NETWORK, coefficients=TRUTH, processors=None):
    """What measurements are made from."""
    return StepTime(coefficients, network, SIZE, Jitter(), 1, processors)


def test_a_step_of_four_workers_on_two_cores_by_hand():
    """30 ms of work slow down by 0.1 x 3/4, and half of it takes turns on the cores; so do 4 ms of rest, all of them.
    At 5 samples launching takes 20 ms, and slows down as work does."""
    free = Network(Link(0.0, 1e30))
    crowded, roomy = true_model(free, HANDY, processors=2), true_model(free, HANDY)

    assert crowded.step_s(Setting(4, 20)) == pytest.approx(0.030 * (1 + 0.075 + 0.5) + 2 * 0.004)
    assert crowded.step_s(Setting(4, 5)) == pytest.approx(0.020 * (1 + 0.075 + 0.5) + 2 * 0.004)
    for model, setting in ((crowded, Setting(2, 20)), (roomy, Setting(2, 20)), (crowded, Setting(4, 20, 1, 2))):
        assert model.step_s(setting) == pytest.approx(0.030 * 1.05 + 0.004)
    assert roomy.step_s(Setting(4, 20)) == pytest.approx(0.030 * 1.075 + 0.004)
    parts = crowded.parts(Setting(4, 5))
    assert (parts.work_s, parts.floor_s, parts.rest_s) == pytest.approx((0.015, 0.005, 0.004))
    assert parts.sharing_s == pytest.approx(0.020 * 0.575 + 0.004)


def test_a_sum_of_two_workers_by_hand():
    """20 ms, half of which hides behind 21 ms of backward: (21^3 + 10^3)^(1/3) - 21 + 10 = 10.7302 ms show."""
    parts = true_model(Network(Link(0.010, 1e30)), HANDY).parts(Setting(2, 20))

    assert parts.network_s == pytest.approx(0.0107302, rel=1e-5)


def test_accumulation_repeats_all_but_the_sum_and_the_rest():
    """Four micro-batches have four times the work and what sharing adds to it, and one sum."""
    model = true_model(coefficients=HANDY, processors=2)

    once, often = model.parts(Setting(4, 32)), model.parts(Setting(4, 32, 4))

    assert often.work_s == pytest.approx(4 * once.work_s)
    assert often.sharing_s - HANDY.rest == pytest.approx(4 * (once.sharing_s - HANDY.rest))
    assert (often.network_s, often.rest_s) == (once.network_s, once.rest_s)


def test_parts_add_up_to_the_step_and_name_the_bottleneck():
    """One worker has no network; a slow network shows; small micro-batches stand on the floor; many take turns."""
    slow = true_model(Network(Link(1e-3, 20e6)))
    settings = [Setting(1, 128), Setting(8, 128), Setting(8, 1)]

    alone, many, small = (slow.parts(setting) for setting in settings)

    assert alone.network_s == alone.jitter_s == alone.floor_s == alone.sharing_s == 0
    assert many.network_s > many.work_s
    assert small.floor_s > small.work_s
    for model in (slow, true_model(processors=2)):
        for setting in settings:
            assert model.parts(setting).total_s == pytest.approx(model.step_s(setting))
    turns = true_model(processors=2).parts(Setting(8, 128))
    assert turns.sharing_s > max(turns.work_s, turns.network_s)


def test_a_sum_hides_behind_the_backward_as_far_as_that_reaches():
    """More work hides more; the part that comes too late never hides."""
    model = true_model(coefficients=Coefficients(0.0, 0.001, 0.0, 0.0, 0.25, 1.0, 0.0))
    whole = NETWORK.all_reduce(4, SIZE)

    shown = [model.parts(Setting(4, b)).network_s for b in (1, 100, 1_000, 100_000)]

    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(whole, rel=0.05)
    assert shown[-1] == pytest.approx(0.25 * whole, rel=0.01)
