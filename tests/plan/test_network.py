"""Links from timed all-reduces: what was put in is found, and an all-reduce of one size is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from paceline.plan.collectives import Link, Network, ring
from paceline.plan.network import Timed, fit_link, network_facts, network_of
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
    found = fit_link(timed(link, (2, 3)))

    assert found.link.latency_s == pytest.approx(link.latency_s, rel=0.01)
    assert found.worst < 0.01
    noisy = fit_link(timed(link, (2, 3), noise=0.05, seed=1)).link
    for size in SIZES:
        assert ring(8, size, noisy) == pytest.approx(ring(8, size, link), rel=0.1)


def test_one_number_of_ranks_says_nothing_of_a_shared_memory():
    """Then each link is taken to be as fast as it looked."""
    found = fit_link(timed(Link(50e-6, 1e9), (2,)))

    assert math.isinf(found.link.shared)
    assert found.link.bandwidth == pytest.approx(1e9, rel=0.01)


def test_one_size_is_refused():
    """As are rows of one rank, which send nothing."""
    with pytest.raises(PacelineError, match="one size"):
        fit_link([Timed(2, 4096, 1e-3), Timed(3, 4096, 2e-3), Timed(1, 1 << 20, 1e-6)])


def test_a_link_drawn_anew_scatters_as_its_times_do():
    """About the link that was found, by more where all-reduces scattered more; the draws hold the truth."""
    truth = Link(50e-6, 1e9)
    generator = np.random.default_rng(0)

    spread = {}
    for noise in (0.0, 0.15):
        found = fit_link(timed(truth, (2, 3), noise=noise, seed=2))
        drawn = np.log([ring(8, SIZES[3], found.drawn(generator)) for _ in range(40)])
        spread[noise] = drawn.std()
        assert np.median(drawn) == pytest.approx(math.log(ring(8, SIZES[3], found.link)), abs=0.1)
        assert drawn.min() < math.log(ring(8, SIZES[3], truth)) < drawn.max()
    assert 0 < 3 * spread[0.0] < spread[0.15]


def test_a_record_of_a_network_is_read_as_the_same():
    """With and without machines, trees and a shared memory."""
    fitted = fit_link(timed(Link(50e-6, 5e9, shared=2e9), (2, 3)))
    for network in (
        Network(Link(1e-5, 1e9)),
        Network(replace(fitted.link, processors=2.0), per_node=8, outer=Link(1e-4, 1e8), tree=True),
    ):
        facts = network_facts(network, fitted)

        assert network_of(facts) == network
        assert facts.probed == [[float(row.ranks), float(row.size_bytes), row.seconds] for row in fitted.rows]


def test_a_probe_of_three_ranks_on_two_cores_predicts_eight():
    """Their messages take turns; a fit that knows of no cores takes the slower rounds of three for slower links."""
    truth = Link(200e-6, 1e9, processors=2.0)
    rows = timed(truth, (2, 3))

    knowing, blind = fit_link(rows, processors=2.0), fit_link(rows)

    assert ring(8, 4096, knowing.link) == pytest.approx(ring(8, 4096, truth), rel=0.02)
    assert ring(8, 4096, blind.link) < 0.5 * ring(8, 4096, truth)
    assert knowing.drawn(np.random.default_rng(0)).processors == 2.0
