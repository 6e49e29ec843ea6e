"""The trace by probes, its error, and where it stops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from paceline.curvature.operator import Operator, Space, weighted
from paceline.curvature.random_vectors import probe
from paceline.curvature.trace import FIRST_LOOK, Estimate, Probing, estimate, probes, trace_sample


def matrix(size: int, seed: int) -> torch.Tensor:
    """A random symmetric matrix."""
    values = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (values + values.T) / 2


def steps_of(apply: Operator, size: int, probing: Probing) -> list[Estimate]:
    """The estimate after each probe of seed 0."""
    return list(probes(lambda number: trace_sample(apply, Space(size), 0, number), probing))


def test_the_variance_of_a_sample_is_that_of_the_formula() -> None:
    """2 (|H|_F^2 - sum H_ii^2); the mean is the trace."""
    held = matrix(6, 1) + 2 * torch.eye(6, dtype=torch.float64)
    variance = 2 * (float(held.square().sum()) - float(held.diag().square().sum()))
    count = 20_000
    drawn = torch.stack([probe(Space(6), 3, i) for i in range(count)])

    samples = ((drawn @ held) * drawn).sum(1)

    assert float(samples.var()) == pytest.approx(variance, rel=0.06)  # its own standard error is about 0.02
    assert abs(float(samples.mean() - held.trace())) < 4 * math.sqrt(variance / count)


def test_signs_are_exact_for_diagonal_matrices() -> None:
    """No spread at all, so the probes of the first look are enough."""
    diagonal = torch.tensor([3.0, -1.0, 0.5, 7.0], dtype=torch.float64)

    found = steps_of(lambda v: diagonal * v, 4, Probing())[-1]

    assert found.mean == pytest.approx(9.5, rel=1e-14)
    assert found.standard_error == pytest.approx(0.0, abs=1e-14)
    assert (found.probes, found.converged) == (FIRST_LOOK, True)


def test_the_standard_error_covers_the_truth() -> None:
    """In 95 % of 200 seeds within about two standard errors (Student's t of 19)."""
    held = matrix(30, 2)
    errors = []
    for seed in range(200):
        samples = [float(z @ held @ z) for z in (probe(Space(30), seed, i) for i in range(20))]
        found = estimate(samples, Probing())
        errors.append(abs(found.mean - float(held.trace())) / found.standard_error)

    assert 0.90 <= np.mean(np.array(errors) < 2.093) <= 0.99


def test_it_stops_at_the_error_that_was_asked_for_and_not_before() -> None:
    """The first look at which the 95 % interval is as narrow as that of a standard error of this share."""
    held = matrix(40, 3) + 3 * torch.eye(40, dtype=torch.float64)

    steps = steps_of(lambda v: held @ v, 40, Probing(relative_error=0.03, max_probes=2000))

    small = [s.probes for s in steps[1:] if s.half_width <= 1.96 * 0.03 * abs(s.mean)]
    looks = Probing(max_probes=2000).looks
    assert looks[:4] == (32, 48, 72, 108)
    assert looks[-1] == 2000
    assert next(look for look in looks if look in small) == steps[-1].probes
    assert steps[-1].converged
    assert [step.probes for step in steps] == list(range(1, len(steps) + 1))
    assert math.isnan(steps[0].standard_error)
    samples = np.array(steps[-1].samples)
    assert steps[-1].mean == pytest.approx(samples.mean())
    assert steps[-1].standard_error == pytest.approx(samples.std(ddof=1) / math.sqrt(len(samples)))


def skewed(generator: np.random.Generator, kind: str, spread: float, shape: tuple[int, int]) -> np.ndarray:
    """Samples of mean 1 and standard deviation `spread`."""
    if kind == "normal":
        return 1 + spread * generator.standard_normal(shape)
    if kind == "gamma":  # a few large eigenvalues
        return generator.gamma(spread**-2, spread**2, shape)
    # One dominating eigenvalue, whose part is a chi-square of one degree of freedom, over a bulk that hardly spreads.
    return 1 + spread * (generator.standard_normal(shape) ** 2 - 1) / math.sqrt(2)


@pytest.mark.parametrize("most", [20, 100, 300])
@pytest.mark.parametrize("kind", ["normal", "gamma", "one eigenvalue"])
def test_the_interval_holds_in_95_percent_although_it_decides_when_to_stop(kind: str, most: int) -> None:
    """1,500 simulations each at spreads that stop at different looks; not more than three of its own errors below 95 %.

    Samples of one dominating eigenvalue are too skewed for 20 probes, the least that anybody would take: 87 %."""
    probing = Probing(max_probes=most)
    for spread in (0.15, 0.2, 0.3, 0.4):
        drawn = skewed(np.random.default_rng(5), kind, spread, (1_500, most))
        held = []
        for row in drawn:
            stopped = next(
                found
                for look in probing.looks
                if (found := estimate(row[:look], probing)).converged or look == probing.max_probes
            )
            held.append(abs(stopped.mean - 1) <= stopped.half_width)
        assert np.mean(held) >= (0.933 if kind != "one eigenvalue" or most > 20 else 0.87), spread


def test_too_few_probes_are_not_converged() -> None:
    """The error stands beside the estimate."""
    held = matrix(40, 3)

    found = steps_of(lambda v: held @ v, 40, Probing(relative_error=0.001, max_probes=10))[-1]

    assert (found.probes, found.converged) == (10, False)
    assert found.half_width > found.standard_error > 0.001 * abs(found.mean)


def test_a_sample_depends_on_its_seed_and_number_only() -> None:
    """So those of an interrupted estimate need not be computed again."""
    held = matrix(40, 3)
    whole = steps_of(lambda v: held @ v, 40, Probing(relative_error=0.001, max_probes=20))[-1]

    found = [trace_sample(lambda v: held @ v, Space(40), 0, number) for number in (12, 5)]

    assert found == [whole.samples[12], whole.samples[5]]
    assert len({*whole.samples, trace_sample(lambda v: held @ v, Space(40), 1, 5)}) == 21


@pytest.mark.parametrize("a", [1.0, 2.0, 5.0, 10.0])
def test_dinhs_weighted_trace_is_two_wherever_the_minimum_is(a: float) -> None:
    """sum w_i^2 H_ii of (w1 w2 - 1)^2 / 2 at (a, 1/a); its two probes differ in sign only, +-2 off the diagonal."""
    point = torch.tensor([a, -1.0 / a], dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda w: 0.5 * (-w[0] * w[1] - 1.0) ** 2, point)
    apply = weighted(lambda v: hessian @ v, point)

    diagonal = [float(apply(unit) @ unit) for unit in torch.eye(2, dtype=torch.float64)]
    found = steps_of(apply, 2, Probing(relative_error=0.01, max_probes=500))[-1]

    assert sum(diagonal) == pytest.approx(2.0, rel=1e-12)
    assert abs(found.mean - 2.0) < 4 * found.standard_error
    assert {round(sample, 9) for sample in found.samples} == {0.0, 4.0}


def test_probes_do_not_depend_on_the_dtype() -> None:
    """Signs are signs."""
    wide, narrow = (probe(Space(50, dtype), 1, 2) for dtype in (torch.float64, torch.float32))

    assert torch.equal(wide.float(), narrow)
    assert set(wide.tolist()) == {-1.0, 1.0}
