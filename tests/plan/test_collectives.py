"""All-reduce times against numbers that were computed elsewhere, and laws that any cost model keeps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.plan.collectives import Link, Network, ring, tree
from paceline.stats.goodput import efficiency

RESNET = 102.2e6
"""Bytes of ResNet-50's gradients in float32."""
WIRE = Link(5e-6, 12.5e9)


@pytest.mark.parametrize(
    ("ranks", "milliseconds"), [(2, 8.186), (4, 12.294), (8, 14.378), (64, 16.7265), (256, 18.838)]
)
def test_a_ring_of_resnet_50_on_100_gigabit(ranks, milliseconds):
    """12.5 GB/s and 5 microseconds."""
    assert 1e3 * ring(ranks, RESNET, WIRE) == pytest.approx(milliseconds, rel=1e-4)


def test_layers_beat_a_flat_ring_over_64_devices():
    """8 machines of 8: 150 GB/s and 5 us inside, 12.5 GB/s and 20 us between, against one ring at the latter."""
    outer, inner = Link(20e-6, 12.5e9), Link(5e-6, 150e9)

    assert 1e3 * ring(64, RESNET, outer) == pytest.approx(18.6165, rel=1e-4)
    assert 1e3 * Network(inner, 8, outer, tree=True).all_reduce(64, RESNET) == pytest.approx(3.3308, rel=1e-4)


@pytest.mark.parametrize(("ranks", "expected"), [(2, 0.9163), (8, 0.8605), (64, 0.8286), (1024, 0.6112)])
def test_system_efficiency_without_overlap(ranks, expected):
    """10 ms and 2.5 ms an image, 32 images a rank, a ring at 20 microseconds that nothing hides."""
    alone = 0.010 + 0.0025 * 32

    assert alone / (alone + ring(ranks, RESNET, Link(20e-6, 12.5e9))) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("ranks", "expected"), [(64, 0.8217), (256, 0.5099), (1024, 0.2025)])
def test_statistical_efficiency_of_the_same_setting(ranks, expected):
    """A noise scale of 8,000 and a base batch of 256: it, and not the network, limits how many devices are of use."""
    assert efficiency(8_000, 256, 32 * ranks) == pytest.approx(expected, abs=5e-5)


@given(st.integers(2, 4096), st.floats(1, 1e10), st.floats(0, 1e-2), st.floats(1e6, 1e12))
def test_times_grow_with_bytes_and_ranks(ranks, size, latency, bandwidth):
    """A ring never needs less for more; a tree has fewer rounds, and never less to send."""
    link = Link(latency, bandwidth)

    assert ring(ranks, 2 * size, link) >= ring(ranks, size, link)
    assert ring(ranks + 1, size, link) >= ring(ranks, size, link)
    assert tree(ranks, size, Link(0.0, bandwidth)) >= ring(ranks, size, Link(0.0, bandwidth))
    assert tree(ranks, 0, link) <= ring(ranks, 0, link) + 1e-18
    assert ring(1, size, link) == tree(1, size, link) == 0


def test_ranks_of_one_machine_share_its_memory():
    """With 1 GB/s in all, 4 ranks that exchange 10 MB move 60 MB: 60 ms, however fast a link of one is."""
    link = Link(0.0, 10e9, shared=1e9)

    assert ring(4, 10e6, link) == pytest.approx(0.06)
    assert ring(2, 10e6, Link(0.0, 1e6, shared=1e9)) == pytest.approx(10.0)


def test_a_network_takes_the_fastest_way_that_its_library_has():
    """Small messages over many ranks go up and down a tree where there are trees; machines are layers where known."""
    small, large = 4e3, 1e9
    with_tree = Network(WIRE, tree=True)
    clustered = Network(Link(5e-6, 150e9), per_node=8, outer=Link(20e-6, 12.5e9), tree=True)

    assert with_tree.all_reduce(64, small) == tree(64, small, WIRE)
    assert with_tree.all_reduce(64, large) == ring(64, large, WIRE)
    assert clustered.all_reduce(8, large) == ring(8, large, Link(5e-6, 150e9))
    assert clustered.all_reduce(64, RESNET) <= 3.3309e-3
    assert Network(WIRE).all_reduce(64, small) == ring(64, small, WIRE)
    assert math.isclose(
        Network(Link(5e-6, 150e9), per_node=8, outer=Link(20e-6, 12.5e9)).all_reduce(64, RESNET),
        18.6165e-3,
        rel_tol=1e-4,
    )


def test_without_trees_one_ring_goes_through_all_machines():
    """At the pace of the slower link, and of the memories, of which each carries its own ranks: by hand, 8 ranks that
    sum 10 MB over 100 MB/s in 1.75 x 0.1 s; over memories of 0.4 GB/s, two of them, in 14 x 10 MB / 0.8 GB/s."""
    outer = Link(0.0, 100e6)

    assert Network(Link(0.0, 1e9), 4, outer).all_reduce(8, 10e6) == pytest.approx(0.175)
    assert Network(Link(0.0, 1e9, shared=0.4e9), 4, Link(0.0, 1e9)).all_reduce(8, 10e6) == pytest.approx(0.175)
    assert Network(Link(0.0, 1e9), 4, outer, tree=True).all_reduce(8, 10e6) == pytest.approx(0.015 + 0.025)


def test_messages_of_more_ranks_than_cores_take_turns():
    """Eight ranks on two cores: 14 rounds of 1 ms, each four times as long; on four machines of two nobody waits."""
    link = Link(1e-3, 1e12, processors=2.0)

    assert ring(8, 0, link) == pytest.approx(14 * 4 * 1e-3)
    assert ring(2, 0, link) == pytest.approx(2e-3)
    assert tree(8, 0, link) == pytest.approx(6 * 4 * 1e-3)
    assert Network(link, 2, Link(1e-3, 1e12)).all_reduce(8, 0) == pytest.approx(14e-3)
    assert link.faster(2.0) == Link(0.5e-3, 2e12, processors=2.0)
