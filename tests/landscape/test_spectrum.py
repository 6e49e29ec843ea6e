"""Eigenvalues, trace and density as measures: closed forms, not converged is said, nothing is computed twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.landscape.measures import TAKE
from paceline.landscape.session import Session
from tests.landscape.problems import Point, conv_net, image_task, quadratic, session

H = [7.0, 5.0, 3.0, 1.0, 0.5, -2.0]
AT = [1.0, -2.0, 0.5, 3.0, 0.1, 1.0]


def counted(made: Session) -> list[int]:
    """Counts products with the Hessian from now on."""
    products = [0]
    plain = made.curvature.hvp

    def hvp(*arguments):
        products[0] += 1
        return plain(*arguments)

    made.curvature.hvp = hvp
    return products


def test_the_spectrum_of_a_quadratic_is_its_own(tmp_path: Path) -> None:
    """Eigenvalues and traces to 1e-8, those of a diagonal Hessian; the density lies between its ends."""
    made = session(quadratic(H, AT), Point(AT), tmp_path, top=3, tolerance=1e-10)

    eigen, trace, density = (TAKE[name](made).result for name in ("eigenvalues", "trace", "density"))

    assert eigen.values == pytest.approx([7.0, 5.0, 3.0], abs=1e-8)
    assert eigen.converged
    assert eigen.weighted_values == pytest.approx([max(h * w * w for h, w in zip(H, AT, strict=True))], abs=1e-8)
    assert trace.value == pytest.approx(sum(H), abs=1e-8)
    assert trace.weighted_value == pytest.approx(sum(h * w * w for h, w in zip(H, AT, strict=True)), abs=1e-8)
    assert (trace.converged, trace.probes) == (True, 32)
    assert trace.half_width == pytest.approx(0.0, abs=1e-8)
    assert density.lowest == pytest.approx(-2.0, abs=1e-8)
    assert density.highest == pytest.approx(7.0, abs=1e-8)
    assert np.trapezoid(density.density, density.grid) == pytest.approx(1.0, abs=1e-3)
    assert density.steps == len(H) < made.config.density_steps
    assert eigen.each_converged == [True] * 3


def test_no_residual_is_stated_below_the_rounding_of_the_whole_hessian(tmp_path: Path) -> None:
    """A large negative eigenvalue is not listed, and products are rounded at its size all the same."""
    made = session(quadratic([1.0, 0.5, -1e6], [1.0, 1.0, 1.0]), Point([1.0, 1.0, 1.0]), tmp_path, top=2)

    eigen = TAKE["eigenvalues"](made).result

    assert min(eigen.residuals) >= 10 * np.finfo(np.float64).eps * 1e6


def test_what_has_not_converged_is_said_with_its_residual(tmp_path: Path) -> None:
    """Two Lanczos steps are too few; the result, the warning and the summary of the trace say so."""
    made = session(image_task(), conv_net(), tmp_path, top=2, steps=2, tolerance=1e-6, probes=8)

    eigen, trace = TAKE["eigenvalues"](made), TAKE["trace"](made)

    assert not eigen.result.converged
    assert not all(eigen.result.each_converged)
    assert max(eigen.result.residuals) > 1e-6 * max(map(abs, eigen.result.values))
    assert "residual" in eigen.warnings[0]
    assert "--steps 4" in eigen.warnings[0]
    assert not trace.result.converged
    assert "95 % interval" in trace.warnings[0]


@pytest.mark.parametrize("name", ["eigenvalues", "trace", "density", "keskar", "sam"])
def test_what_was_kept_is_not_computed_again(tmp_path: Path, name: str) -> None:
    """A second session on the same parts gives the same bits with hardly a product or gradient."""
    first = session(image_task(), conv_net(), tmp_path, top=2, probes=30)
    once = TAKE[name](first)

    again = session(image_task(), conv_net(), tmp_path, top=2, probes=30)
    products = counted(again)
    gradients = [0]
    plain = again.curvature.gradient

    def gradient(point):
        gradients[0] += 1
        return plain(point)

    again.curvature.gradient = gradient
    twice = TAKE[name](again)

    assert twice.result == once.result
    assert {key: array.tobytes() for key, array in twice.arrays.items()} == {
        key: array.tobytes() for key, array in once.arrays.items()
    }
    assert products[0] <= 2
    assert gradients[0] <= 1  # at the weights themselves


def test_a_torn_lanczos_step_is_made_again(tmp_path: Path) -> None:
    """A file that ends within a step leads to the same eigenvalues, and is whole again afterwards."""
    whole = TAKE["eigenvalues"](session(image_task(), conv_net(), tmp_path, top=2)).result
    path = tmp_path / "eigenvalues.lanczos"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 3])

    again = session(image_task(), conv_net(), tmp_path, top=2)
    products = counted(again)
    resumed = TAKE["eigenvalues"](again).result

    third = session(image_task(), conv_net(), tmp_path, top=2)
    repeated = counted(third)
    assert TAKE["eigenvalues"](third).result == resumed

    assert resumed.values == pytest.approx(whole.values, rel=1e-9)
    assert 0 < products[0] < whole.steps
    assert repeated[0] <= 2
