"""The trace by probes, its error, and where it stops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from paceline.curvature.operator import Space, weighted
from paceline.curvature.trace import LEAST_PROBES, Probing, estimate, probes, trace
from paceline.curvature.vectors import probe
from paceline.records.errors import PacelineError


def matrix(size: int, seed: int) -> torch.Tensor:
    """A random symmetric matrix."""
    values = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (values + values.T) / 2


@pytest.mark.parametrize("kind", ["rademacher", "gaussian"])
def test_the_variance_of_a_sample_is_that_of_the_formula(kind: str) -> None:
    """2 (|H|_F^2 - sum H_ii^2) with signs, 2 |H|_F^2 with normal numbers; the mean is the trace."""
    held = matrix(6, 1) + 2 * torch.eye(6, dtype=torch.float64)
    total, diagonal = float(held.square().sum()), float(held.diag().square().sum())
    variance = 2 * (total - (diagonal if kind == "rademacher" else 0.0))
    count = 20_000
    drawn = torch.stack([probe(6, 3, i, kind, torch.float64, torch.device("cpu")) for i in range(count)])

    samples = ((drawn @ held) * drawn).sum(1)

    assert float(samples.var()) == pytest.approx(variance, rel=0.06)  # its own standard error is about 0.02
    assert abs(float(samples.mean() - held.trace())) < 4 * math.sqrt(variance / count)


def test_signs_are_exact_for_diagonal_matrices() -> None:
    """No spread at all, so the fewest probes are enough."""
    diagonal = torch.tensor([3.0, -1.0, 0.5, 7.0], dtype=torch.float64)

    found = trace(lambda v: diagonal * v, Space(4), Probing())

    assert found.mean == pytest.approx(9.5, rel=1e-14)
    assert found.standard_error == pytest.approx(0.0, abs=1e-14)
    assert (found.probes, found.converged) == (LEAST_PROBES, True)


def test_the_standard_error_covers_the_truth() -> None:
    """In 95 % of 200 seeds within about two standard errors (Student's t of 19)."""
    held = matrix(30, 2)
    errors = []
    for seed in range(200):
        samples = [
            float(z @ held @ z)
            for z in (probe(30, seed, i, "rademacher", torch.float64, torch.device("cpu")) for i in range(20))
        ]
        found = estimate(samples, Probing())
        errors.append(abs(found.mean - float(held.trace())) / found.standard_error)

    assert 0.90 <= np.mean(np.array(errors) < 2.093) <= 0.99


def test_it_stops_at_the_error_that_was_asked_for_and_not_before() -> None:
    """The first estimate, of enough probes, whose standard error is a share of the mean."""
    held = matrix(40, 3) + 3 * torch.eye(40, dtype=torch.float64)

    steps = list(probes(lambda v: held @ v, Space(40), Probing(relative_error=0.03, max_probes=2000)))

    small = [s.probes >= LEAST_PROBES and s.standard_error <= 0.03 * abs(s.mean) for s in steps]
    assert small.index(True) == len(steps) - 1
    assert steps[-1].converged
    assert [step.probes for step in steps] == list(range(1, len(steps) + 1))
    assert math.isnan(steps[0].standard_error)
    samples = np.array(steps[-1].samples)
    assert steps[-1].mean == pytest.approx(samples.mean())
    assert steps[-1].standard_error == pytest.approx(samples.std(ddof=1) / math.sqrt(len(samples)))


def test_too_few_probes_are_not_converged() -> None:
    """The error stands beside the estimate."""
    held = matrix(40, 3)

    found = trace(lambda v: held @ v, Space(40), Probing(relative_error=0.001, max_probes=10))

    assert (found.probes, found.converged) == (10, False)
    assert found.standard_error > 0.001 * abs(found.mean)


def test_an_interrupted_estimate_goes_on_with_the_same_numbers() -> None:
    """Probe i depends on the seed and i only, so what is done is not computed again."""
    held = matrix(40, 3)
    probing = Probing(relative_error=0.001, max_probes=20)
    whole = trace(lambda v: held @ v, Space(40), probing)
    calls = [0]

    def counted(vector: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return held @ vector

    *_, again = probes(counted, Space(40), probing, done=whole.samples[:12])

    assert again == whole
    assert calls[0] == 8
    assert list(probes(counted, Space(40), probing, done=whole.samples)) == [whole]


@pytest.mark.parametrize("a", [1.0, 2.0, 5.0, 10.0])
def test_dinhs_weighted_trace_is_two_wherever_the_minimum_is(a: float) -> None:
    """sum w_i^2 H_ii of (w1 w2 - 1)^2 / 2 at (a, 1/a); its two probes differ in sign only, +-2 off the diagonal."""
    point = torch.tensor([a, -1.0 / a], dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda w: 0.5 * (-w[0] * w[1] - 1.0) ** 2, point)
    apply = weighted(lambda v: hessian @ v, point)

    diagonal = [float(apply(unit) @ unit) for unit in torch.eye(2, dtype=torch.float64)]
    found = trace(apply, Space(2), Probing(relative_error=0.01, max_probes=500))

    assert sum(diagonal) == pytest.approx(2.0, rel=1e-12)
    assert abs(found.mean - 2.0) < 4 * found.standard_error
    assert {round(sample, 9) for sample in found.samples} == {0.0, 4.0}


def test_probes_do_not_depend_on_the_dtype() -> None:
    """Signs are signs; normal numbers are rounded."""
    for kind in ("rademacher", "gaussian"):
        wide, narrow = (probe(9, 1, 2, kind, dtype, torch.device("cpu")) for dtype in (torch.float64, torch.float32))
        assert torch.equal(wide.float(), narrow)
    assert set(probe(50, 1, 2, "rademacher", torch.float64, torch.device("cpu")).tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("wrong", [{"relative_error": 0.0}, {"relative_error": 1.0}, {"max_probes": 7}, {"kind": "x"}])
def test_settings_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    """With the legal ones."""
    with pytest.raises(PacelineError) as caught:
        Probing(**wrong)

    assert "legal" in caught.value.hint
