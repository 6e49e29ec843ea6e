"""Eigenvalues by Lanczos, against numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.curvature.krylov import Krylov
from paceline.curvature.lanczos import Eigenpairs, Row, Wanted, eigenpairs, lanczos
from paceline.curvature.operator import Space, weighted
from paceline.curvature.random_vectors import start_vector
from paceline.records.errors import Exit, PacelineError


def product(matrix: np.ndarray, dtype: torch.dtype = torch.float64) -> tuple[Callable[[Tensor], Tensor], Space]:
    """The operator of a matrix, or of a diagonal."""
    held = torch.from_numpy(np.asarray(matrix, dtype=np.float64)).to(dtype)
    return (lambda v: held * v if held.ndim == 1 else held @ v), Space(len(held), dtype)


def symmetric(size: int, seed: int) -> np.ndarray:
    """A random symmetric matrix."""
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    return (matrix + matrix.T) / 2


def searched(matrix: np.ndarray, wanted: Wanted) -> tuple[Eigenpairs, np.ndarray]:
    """What is found, and (k, n) the Ritz vectors, from the steps that were kept."""
    kept: list[Row] = []
    *_, found = lanczos(*product(matrix), wanted, kept)
    beside = [row.beta for row in kept[:-1]]
    tridiagonal = np.diag([row.alpha for row in kept]) + np.diag(beside, 1) + np.diag(beside, -1)
    columns = np.linalg.eigh(tridiagonal)[1][:, ::-1][:, : wanted.largest]
    return found, columns.T @ torch.stack([row.vector for row in kept]).numpy()


@settings(max_examples=60)
@example(size=12, seed=0, rank=2, largest=2, sign=-1)  # an eigenvalue of 0, found last, to 12 units of rounding
@example(size=11, seed=134202, rank=5, largest=3, sign=1)  # likewise, and not converged by its own word
@given(
    size=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    rank=st.integers(0, 12),
    largest=st.integers(1, 5),
    sign=st.sampled_from([1, -1]),
)
def test_either_end_of_any_small_spectrum_is_numpys(size: int, seed: int, rank: int, largest: int, sign: int) -> None:
    """Of H or -H, of whole and deficient rank; none is missing, and zero may be listed as often as it is there."""
    values, columns = np.linalg.eigh(symmetric(size, seed))
    values[rank:] = 0.0
    matrix = sign * (columns * values @ columns.T)
    matrix = (matrix + matrix.T) / 2
    distinct = np.unique(sign * values)

    found, vectors = searched(matrix, Wanted(largest, tol=1e-10))

    # Relative to 0 nothing converges but by rounding, which short spaces that end early may magnify a thousandfold:
    # in 3 of 1,000 such cases the search says "not converged" of an eigenvalue of 0, with this residual.
    open_ = [pair for pair in found.largest if not pair.converged]
    assert found.converged or open_, found.note
    assert all(abs(pair.value) < 1e-12 and pair.residual < 1e-11 * found.norm for pair in open_), found.note
    listed = np.array([pair.value for pair in found.largest])
    nearest = distinct[np.abs(listed[:, None] - distinct).argmin(axis=1)]
    assert len(listed) == min(largest, size)
    np.testing.assert_allclose(listed, nearest, atol=1e-10, rtol=1e-8)
    assert set(nearest) == set(distinct[distinct >= nearest.min()])
    assert [value for value in nearest if value] == sorted({value for value in nearest if value}, reverse=True)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(found.largest)), atol=1e-7)
    for pair, vector in zip(found.largest, vectors, strict=True):
        np.testing.assert_allclose(matrix @ vector, pair.value * vector, atol=1e-8)


def test_an_eigenvalue_that_repeats_is_listed_once() -> None:
    """Of 303 numbers, unless the search has to begin anew: looking for copies costs as many products again."""
    spectrum = np.array([*np.linspace(0.0, 1.0, 300), 4.0, 4.0, 3.0])

    found = eigenpairs(*product(spectrum), Wanted(2, tol=1e-4))
    exhausted = eigenpairs(*product(np.array([4.0, 4.0, 3.0])), Wanted(3))

    np.testing.assert_allclose([pair.value for pair in found.largest], [4.0, 3.0], atol=1e-6)
    np.testing.assert_allclose([pair.value for pair in exhausted.largest], [4.0, 4.0, 3.0], atol=1e-6)
    assert found.converged
    assert exhausted.converged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_eigenvalue_is_signed(dtype: torch.dtype) -> None:
    """1 of diag(1, -1.5, 0.2), where power iteration goes to -1.5; that is the largest of the negative."""
    spectrum = np.array([1.0, -1.5, 0.2])
    kept: list[Row] = []

    *_, found = lanczos(*product(spectrum, dtype), Wanted(), kept)
    negative = eigenpairs(*product(-spectrum, dtype), Wanted())

    assert found.largest[0].value == pytest.approx(1.0, rel=1e-6)
    assert negative.largest[0].value == pytest.approx(1.5, rel=1e-6)
    assert {row.vector.dtype for row in kept} == {dtype}


def test_the_norm_is_that_of_the_whole_spectrum() -> None:
    """Also where the eigenvalue that it comes from is at the end that nobody asked for."""
    found = eigenpairs(*product(np.array([3.0, -100.0, 0.2, 1.0])), Wanted(1))

    assert found.norm == pytest.approx(100.0)


def test_a_diagonal_spectrum_is_found_to_1e_8() -> None:
    """The ten ends of 1/i, i = 1..200, with residuals that bound the errors."""
    spectrum = 1.0 / np.arange(1, 201)

    found = eigenpairs(*product(spectrum), Wanted(10, tol=1e-9))

    assert found.converged
    errors = np.abs([pair.value for pair in found.largest] - spectrum[:10])
    assert errors.max() < 1e-8
    assert all(error <= pair.residual + 1e-14 for error, pair in zip(errors, found.largest, strict=True))


def test_what_has_not_converged_says_so_with_its_residual() -> None:
    """Too few steps: not converged, in words, and residuals that are the true ones."""
    matrix = symmetric(200, 1)

    found, vectors = searched(matrix, Wanted(4, tol=1e-6, max_steps=15))

    assert found.steps == 15
    assert not found.converged
    assert "0 of 4 eigenvalues converged in 15 steps" in found.note
    for pair, vector in zip(found.largest, vectors, strict=True):
        assert not pair.converged
        assert pair.residual == pytest.approx(np.linalg.norm(matrix @ vector - pair.value * vector), rel=1e-6)
    assert found.worst == pytest.approx(max(pair.residual / abs(pair.value) for pair in found.largest))


def test_fewer_steps_than_values_is_said() -> None:
    """Not the values that there are, as if they were all."""
    found = eigenpairs(*product(symmetric(50, 1)), Wanted(5, max_steps=3))

    assert not found.converged
    assert "3 eigenvalues were found in 3 steps" in found.note


def test_a_basis_stays_orthogonal_long_after_convergence() -> None:
    """150 steps on a spectrum whose ends converge at once: without re-orthogonalisation copies would appear."""
    spectrum = np.concatenate([np.linspace(0.0, 1.0, 300), [50.0, 100.0, 1000.0]])
    krylov = Krylov(*product(spectrum))
    krylov.advance(krylov.first(start_vector(len(spectrum), 0, 1)))

    while len(krylov) < 150:
        krylov.advance(krylov.following())

    basis = torch.stack(krylov.vectors)
    assert float((basis @ basis.T - torch.eye(150, dtype=torch.float64)).abs().max()) < 1e-13
    assert np.sum(krylov.eigen()[0] > 40.0) == 3


def counted(matrix: np.ndarray) -> tuple[Callable[[Tensor], Tensor], Space, list[int]]:
    """The operator, and how often it was called."""
    apply, space = product(matrix)
    calls = [0]

    def counting(vector: Tensor) -> Tensor:
        calls[0] += 1
        return apply(vector)

    return counting, space, calls


@pytest.mark.parametrize("spectrum", [np.linspace(0.0, 1.0, 40) ** 3, np.array([5.0, 5.0, 3.0, 3.0, 1.0, 0.0, -2.0])])
def test_a_search_goes_on_from_kept_steps_with_the_same_bits(spectrum: np.ndarray) -> None:
    """Stopped at every step in turn, breakdowns included; one product more than undisturbed."""
    wanted = Wanted(4, tol=1e-6)
    apply, space, calls = counted(spectrum)
    whole: list[Row] = []
    steps = list(lanczos(apply, space, wanted, whole))
    needed = calls[0]

    for stop in range(1, len(steps) + 1):
        kept: list[Row] = []
        for found in lanczos(apply, space, wanted, kept):
            if found.steps == stop:
                break
        calls[0] = 0
        again = list(lanczos(apply, space, wanted, kept))

        assert again == steps
        assert calls[0] <= needed - stop + 1
        assert all(torch.equal(ours.vector, row.vector) for ours, row in zip(kept, whole, strict=True))


def test_kept_steps_of_another_problem_are_refused() -> None:
    """Their vectors have another length."""
    kept: list[Row] = []
    list(lanczos(*product(np.arange(4.0)), Wanted(), kept))

    with pytest.raises(PacelineError, match="belong to another problem"):
        next(lanczos(*product(np.arange(5.0)), Wanted(), kept))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_start_depends_on_the_seed_and_not_on_the_dtype(dtype: torch.dtype) -> None:
    """Drawn in float64 on the CPU, then rounded: every rank and device starts alike."""
    first = Krylov(*product(np.ones(9), dtype)).first(start_vector(9, 5, 1))
    wide = start_vector(9, 5, 1)

    torch.testing.assert_close(first, (wide / wide.norm()).to(dtype))
    assert not torch.equal(start_vector(9, 5, 1), start_vector(9, 6, 1))
    assert not torch.equal(start_vector(9, 5, 1), start_vector(9, 5, 2))


def test_a_product_that_is_not_finite_is_an_error() -> None:
    """With the exit code of diverged mathematics."""
    with pytest.raises(PacelineError, match="not finite") as caught:
        eigenpairs(lambda v: v * float("nan"), Space(4), Wanted())

    assert caught.value.exit_code == Exit.DIVERGED


@pytest.mark.parametrize(("a", "plain"), [(1.0, 2.0), (2.0, 4.25), (5.0, 25.04), (10.0, 100.01)])
def test_dinhs_table(a: float, plain: float) -> None:
    """f = (w1 w2 - 1)^2 / 2 at (a, 1/a) is one function, yet its plain sharpness grows; the weighted one does not."""
    point = torch.tensor([a, 1.0 / a], dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda w: 0.5 * (w[0] * w[1] - 1.0) ** 2, point)

    sharpness = eigenpairs(*product(hessian.numpy()), Wanted(tol=1e-9))
    relative = eigenpairs(weighted(lambda v: hessian @ v, point), Space(2), Wanted(tol=1e-9))

    assert sharpness.largest[0].value == pytest.approx(plain, rel=1e-8)
    assert relative.largest[0].value == pytest.approx(2.0, rel=1e-8)
