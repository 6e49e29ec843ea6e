"""Spectral density: exact moments, and a curve whose area is 1."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.curvature.density import Quadrature, curve, quadrature
from paceline.curvature.operator import Operator, Space
from paceline.curvature.random_vectors import probe


def spectrum_of(size: int, seed: int) -> torch.Tensor:
    """A symmetric matrix with eigenvalues in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))[0]
    values = 2 * torch.rand(size, dtype=torch.float64, generator=generator) - 1
    held = basis * values @ basis.T
    return (held + held.T) / 2


def quadratures(apply: Operator, size: int, steps: int, probes: int, seed: int = 0) -> list[Quadrature]:
    """Of the first probes of a seed."""
    return [quadrature(apply, Space(size), steps=steps, seed=seed, number=number) for number in range(probes)]


def moment(found: Quadrature, power: int) -> float:
    """z^T H^power z, exact for power <= 2m - 1."""
    return float(np.sum(found.weights * found.nodes**power))


@settings(max_examples=40)
@given(size=st.integers(1, 40), steps=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_moments_are_exact_to_degree_2m_minus_1(size: int, steps: int, seed: int) -> None:
    """z^T H^p z, by powers of the matrix, to 1e-12; weights are a distribution."""
    held = spectrum_of(size, seed)
    z = probe(Space(size), 4, 0) / math.sqrt(size)

    (found,) = quadratures(lambda v: held @ v, size, steps=steps, probes=1, seed=4)

    power = z.clone()
    for degree in range(2 * steps):
        assert moment(found, degree) == pytest.approx(float(z @ power), abs=1e-12)
        power = held @ power
    assert (found.weights >= 0).all()
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-13)
    assert len(found.nodes) <= min(steps, size)


def test_the_next_moment_is_not_exact() -> None:
    """Degree 2m is the first that m nodes cannot have; so the test above can fail."""
    held = spectrum_of(40, 1)
    z = probe(Space(40), 4, 0) / math.sqrt(40)

    (found,) = quadratures(lambda v: held @ v, 40, steps=3, probes=1, seed=4)

    assert abs(moment(found, 6) - float(z @ torch.linalg.matrix_power(held, 6) @ z)) > 1e-4


def test_a_small_krylov_space_ends_early() -> None:
    """Two distinct eigenvalues give two nodes, with their shares as weights."""
    diagonal = torch.tensor([2.0] * 6 + [-1.0] * 2, dtype=torch.float64)

    (found,) = quadratures(lambda v: diagonal * v, 8, steps=5, probes=1)

    np.testing.assert_allclose(found.nodes, [-1.0, 2.0], atol=1e-12)
    np.testing.assert_allclose(found.weights, [0.25, 0.75], atol=1e-12)


def test_the_mean_over_probes_approaches_the_spectrum() -> None:
    """Shares of eigenvalues below a bound, within a few standard errors; the first moment is the trace / n."""
    held = spectrum_of(60, 2)
    values = torch.linalg.eigvalsh(held)

    found = quadratures(lambda v: held @ v, 60, steps=60, probes=40)

    below = [float(each.weights[each.nodes < 0].sum()) for each in found]
    assert abs(np.mean(below) - float((values < 0).double().mean())) < 4 * np.std(below) / math.sqrt(40)
    first = [moment(each, 1) for each in found]
    assert abs(np.mean(first) - float(held.trace()) / 60) < 4 * np.std(first) / math.sqrt(40)


def test_the_curve_is_a_density_with_its_bandwidth() -> None:
    """Its area is 1, it is a sum of Gaussians of the stated width, and the spread is that of the probes."""
    held = spectrum_of(30, 3)
    found = quadratures(lambda v: held @ v, 30, steps=6, probes=3)

    shown = curve(found)

    nodes = list(itertools.chain(*(each.nodes for each in found)))
    assert shown.bandwidth == pytest.approx((max(nodes) - min(nodes)) / 200)
    assert np.trapezoid(shown.density, shown.eigenvalues) == pytest.approx(1.0, abs=1e-4)
    at = int(shown.density.argmax())
    heights = [
        sum(
            w / math.sqrt(2 * math.pi) / shown.bandwidth
            * math.exp(-((shown.eigenvalues[at] - t) ** 2) / 2 / shown.bandwidth**2)
            for t, w in zip(each.nodes, each.weights, strict=True)
        )
        for each in found
    ]  # fmt: skip
    assert shown.density[at] == pytest.approx(np.mean(heights))
    assert shown.spread[at] == pytest.approx(np.std(heights, ddof=1) / math.sqrt(3))
    assert np.isnan(curve(found[:1]).spread).all()


def test_one_eigenvalue_still_has_a_curve() -> None:
    """The zero operator: a single peak of a stated width at 0."""
    found = quadratures(torch.zeros_like, 5, steps=64, probes=2)

    shown = curve(found)

    assert shown.bandwidth > 0
    assert shown.eigenvalues[int(shown.density.argmax())] == pytest.approx(0.0, abs=shown.bandwidth)


def test_a_quadrature_depends_on_its_seed_and_number_only() -> None:
    """So those of an interrupted run can be kept and others added."""
    held = spectrum_of(20, 3)
    whole = quadratures(lambda v: held @ v, 20, steps=5, probes=4)

    again = quadrature(lambda v: held @ v, Space(20), steps=5, seed=0, number=2)

    np.testing.assert_array_equal(again.nodes, whole[2].nodes)
    np.testing.assert_array_equal(again.weights, whole[2].weights)
    assert not np.array_equal(whole[2].nodes, whole[3].nodes)
