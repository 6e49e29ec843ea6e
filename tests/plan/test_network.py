"""Links from timed all-reduces: what was put in is found, and an all-reduce of one size is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.plan.collectives import Link, ring
from paceline.plan.network import Timed, fit_link
from paceline.records.errors import PacelineError

SIZES = [4 * 1024 * 8**k for k in range(6)]


def timed(link, ranks, noise=0.0, seed=0):
    """All sizes on each number of ranks."""
    generator = np.random.default_rng(seed)
    return [
        Timed(k, size, ring(k, size, link) * math.exp(noise * generator.standard_normal()))
        for k in ranks
        for size in SIZES
    ]


@pytest.mark.parametrize("link", [Link(50e-6, 1e9), Link(200e-6, 20e6), Link(50e-6, 5e9, shared=2e9)])
def test_a_link_is_found_and_predicts_more_ranks(link):
    """Within 1 % without noise; with 5 % of noise, eight ranks are predicted within 10 %."""
    found = fit_link(timed(link, (2, 3)), one_machine=True)

    assert found.link.latency_s == pytest.approx(link.latency_s, rel=0.01)
    assert found.worst < 0.01
    assert found.determination > 0.999
    noisy = fit_link(timed(link, (2, 3), noise=0.05, seed=1), one_machine=True).link
    for size in SIZES:
        assert ring(8, size, noisy) == pytest.approx(ring(8, size, link), rel=0.1)


def test_one_number_of_ranks_says_nothing_of_a_shared_memory():
    """Then each link is taken to be as fast as it looked."""
    found = fit_link(timed(Link(50e-6, 1e9), (2,)), one_machine=True)

    assert math.isinf(found.link.shared)
    assert found.link.bandwidth == pytest.approx(1e9, rel=0.01)


def test_one_size_is_refused():
    """As are rows of one rank, which send nothing."""
    with pytest.raises(PacelineError, match="one size"):
        fit_link([Timed(2, 4096, 1e-3), Timed(3, 4096, 2e-3), Timed(1, 1 << 20, 1e-6)], one_machine=False)
