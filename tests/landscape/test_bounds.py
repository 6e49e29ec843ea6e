"""Keskar's and SAM's sharpness against what they are on quadratics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from paceline.landscape import keskar, sam
from paceline.landscape.measures import TAKE
from tests.landscape.problems import Point, dinh, quadratic, session

H = [1.0, 2.0, 3.0, 4.0, 5.0]
X = [0.0, 1.0, -2.0, 0.5, 3.0]
PHI = 0.00367647059
"""100 * 0.5 * sum h_i bw_i^2 / 1.7 with bw_i = 1e-3 (|x_i| + 1)."""


def diagonal(h: list[float], c: list[float], floor: float = 0.0) -> Callable[[Tensor], tuple[float, Tensor]]:
    """A quadratic and its gradient."""
    curvature, minimum = torch.tensor(h, dtype=torch.float64), torch.tensor(c, dtype=torch.float64)
    return lambda w: (
        floor + 0.5 * float((curvature * (w - minimum) ** 2).sum()), curvature * (w - minimum),
    )  # fmt: skip


def test_keskars_number_of_a_diagonal_quadratic_from_every_start() -> None:
    """The reference to 1e-8, 20 of 20 starts."""
    x = torch.tensor(X, dtype=torch.float64)
    box = keskar.Box.around(x, keskar.Identity(x), 1e-3)

    found = [keskar.sharpness(keskar.climb(diagonal(H, X, 0.7), x, box, seed=5, start=k), 0.7) for k in range(20)]

    assert found == pytest.approx([PHI] * 20, abs=1e-8)


def test_no_start_leaves_the_box() -> None:
    """Each point that the loss is asked for lies within epsilon * (|x| + 1)."""
    x = torch.tensor(X, dtype=torch.float64)
    box = keskar.Box.around(x, keskar.Identity(x), 1e-3)
    asked: list[Tensor] = []

    def watched(point: Tensor) -> tuple[float, Tensor]:
        asked.append((point - x).abs() / (1e-3 * (x.abs() + 1)))
        return diagonal(H, X)(point)

    keskar.climb(watched, x, box, seed=0, start=0)

    assert float(torch.stack(asked).max()) <= 1 + 1e-9
    assert len(asked) > 2


def test_coordinates_of_very_different_slopes_all_reach_their_side_of_the_box() -> None:
    """A steep weight and 2,000 slight ones, which together count for more: ten iterations find nine tenths of it."""
    slopes = torch.full((2000,), -1e-3, dtype=torch.float64)
    slopes[0] = 1.0
    x = torch.zeros(2000, dtype=torch.float64)
    box = keskar.Box.around(x, keskar.Identity(x), 1e-3)

    found = keskar.climb(lambda w: (float(slopes @ w), slopes), x, box, seed=0, start=0)

    highest = 1e-3 * float(slopes.abs().sum())
    assert 0.9 * highest < found <= highest * (1 + 1e-12)


def test_a_search_ends_when_only_rounding_is_left() -> None:
    """With a loss that is rounded coarsely, neither search asks for more than it is allowed to."""
    asked = [0]

    def rough(w: Tensor) -> tuple[float, Tensor]:
        asked[0] += 1
        value, gradient = diagonal(H, X)(w)
        return round(value, 6), gradient

    x = torch.tensor(X, dtype=torch.float64)
    keskar.climb(rough, x, keskar.Box.around(x, keskar.Identity(x), 1e-3), seed=0, start=0)
    in_the_box, asked[0] = asked[0], 0
    sam.climb(rough, x.float().double(), 0.05, start=1)

    assert in_the_box <= keskar.MOST
    assert asked[0] <= sam.STEPS


def test_no_search_asks_for_more_gradients_than_were_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a line search goes on and on, and where the gradient at the weights says nothing and SAM begins anew."""
    asked = [0]

    def rising(w: Tensor) -> tuple[float, Tensor]:
        asked[0] += 1
        return float(asked[0]), torch.full_like(w, asked[0] - 1)

    def tireless(fun: Callable[..., object], start: np.ndarray, **_: object) -> None:
        for _number in range(100):
            fun(start)

    monkeypatch.setattr(keskar.optimize, "minimize", tireless)
    x = torch.tensor(X, dtype=torch.float64)

    highest = keskar.climb(rising, x, keskar.Box.around(x, keskar.Identity(x), 1e-3), seed=0, start=0)
    in_the_box, asked[0] = asked[0], 0
    sam.climb(rising, x, 0.05)

    assert in_the_box == highest == keskar.MOST
    assert asked[0] == sam.STEPS


def test_a_random_subspace_is_searched_in_its_own_box() -> None:
    """A+ and A^T are those of the matrix that A y shows, and no corner of the box beats the search by more than 1 %."""
    x = torch.tensor(X, dtype=torch.float64)
    embedding = keskar.RandomSubspace(x, 3, seed=2)
    matrix = np.stack([embedding.apply(column).numpy() for column in np.eye(3)], axis=1)
    box = keskar.Box.around(x, embedding, 1e-2)

    found = max(keskar.climb(diagonal(H, X, 0.7), x, box, seed=0, start=k) for k in range(8))

    assert embedding.inverse(x) == pytest.approx(np.linalg.pinv(matrix) @ np.array(X), rel=1e-5)
    assert embedding.transposed(x) == pytest.approx(matrix.T @ np.array(X), rel=1e-12)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1)
    corners = matrix @ (signs * box.half[:, None])
    highest = 0.7 + (0.5 * np.array(H)[:, None] * corners**2).sum(axis=0).max()
    assert found - 0.7 == pytest.approx(highest - 0.7, rel=0.01)


def test_a_matrix_too_big_to_keep_is_the_same_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made anew for each product, block by block, it gives the same bits."""
    x = torch.linspace(-1, 1, 1000, dtype=torch.float64)
    monkeypatch.setattr(keskar, "_BLOCK_BYTES", 8 * 7 * 100)
    kept = keskar.RandomSubspace(x, 7, seed=1)
    monkeypatch.setattr(keskar, "_KEEP_BYTES", 0)
    anew = keskar.RandomSubspace(x, 7, seed=1)

    y = np.arange(7.0)
    assert torch.equal(kept.apply(y), anew.apply(y))
    assert np.array_equal(kept.transposed(x), anew.transposed(x))


@pytest.mark.parametrize("start", range(4))
def test_sam_of_a_minimum_is_half_the_largest_eigenvalue_times_rho_squared(start: int) -> None:
    """0.0125 at rho = 0.05 and an eigenvalue of 10, to 1e-8, from every start."""
    minimum = [0.3, -1.0, 2.0]
    weights = torch.tensor(minimum, dtype=torch.float64)

    found = sam.climb(diagonal([1.0, 10.0, 3.0], minimum), weights, 0.05, start=start)

    assert found == pytest.approx(0.0125, abs=1e-8)


def test_sam_on_a_slope_is_the_slope_times_rho() -> None:
    """A linear loss rises most along its gradient."""
    slope = torch.tensor([3.0, -4.0], dtype=torch.float64)

    found = sam.climb(lambda w: (float(slope @ w), slope), torch.zeros(2, dtype=torch.float64), 0.1)

    assert found == pytest.approx(0.5, rel=1e-12)


def test_sam_never_leaves_the_ball_and_never_falls() -> None:
    """On a loss that is not convex, too: the result is the largest value that was seen inside."""
    asked: list[tuple[float, float]] = []

    def wavy(w: Tensor) -> tuple[float, Tensor]:
        value, gradient = float(torch.sin(9 * w).sum()), 9 * torch.cos(9 * w)
        asked.append((float(w.norm()), value))
        return value, gradient

    found = sam.climb(wavy, torch.zeros(5, dtype=torch.float64), 0.5, start=2)

    assert max(radius for radius, _ in asked) <= 0.5 + 1e-12
    assert found == max(value for _, value in asked)


@pytest.mark.parametrize("a", [1.0, 2.0, 5.0, 10.0])
def test_rescaling_changes_plain_sharpness_and_leaves_the_weighted_forms(tmp_path: Path, a: float) -> None:
    """Dinh's table: lam_max = a^2 + 1/a^2; the weighted trace and eigenvalue are 2, and adaptive SAM does not move."""
    made = session(dinh(), Point([a, 1 / a]), tmp_path, top=1, tolerance=1e-9)

    eigen, trace, ball = (TAKE[name](made).result for name in ("eigenvalues", "trace", "sam"))

    assert eigen.values[0] == pytest.approx(a**2 + a**-2, abs=1e-8)
    assert eigen.weighted_values[0] == pytest.approx(2.0, abs=1e-8)
    assert trace.weighted_value == pytest.approx(2.0, abs=2 * trace.weighted_error + 1e-8)
    reference = TAKE["sam"](session(dinh(), Point([1.0, 1.0]), tmp_path / "one")).result
    assert ball.adaptive_value == pytest.approx(reference.adaptive_value, rel=1e-6)
    assert a == 1.0 or ball.value > 1.5 * reference.value


def test_the_measure_itself_gives_keskars_number(tmp_path: Path) -> None:
    """Through the loss on samples and its gradient, as `paceline landscape` takes it."""
    made = session(quadratic(H, X, 0.7), Point(X), tmp_path)

    found = TAKE["keskar"](made).result

    assert found.value == pytest.approx(PHI, abs=1e-8)
    assert found.starts == pytest.approx([PHI] * 3, abs=1e-8)
