"""The oracle is plain single-process training; a comparison with it says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from paceline.tasks.task import Loss
from paceline.verify.compare import compare
from paceline.verify.oracle import Problem, train_alone

X = torch.linspace(-1, 1, 24).reshape(12, 2)
Y = X @ torch.tensor([[2.0], [-1.0]]) + 0.5


def half_square(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    """Sum of squared residuals, halved."""
    return Loss(0.5 * (model(batch[0]) - batch[1]).square().sum(), len(batch[0]))


def problem(**changes: Any) -> Problem:
    """A line in two variables."""
    parts: dict[str, Any] = {
        "model": lambda: nn.Linear(2, 1),
        "loss": half_square,
        "data": lambda indices: (X[list(indices)], Y[list(indices)]),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    }
    return Problem(**parts | changes)


def by_hand(weights: np.ndarray, bias: np.ndarray, batches: Sequence[Sequence[int]]) -> np.ndarray:
    """Gradient descent on the mean over each batch, from the formula."""
    x, y = X.double().numpy(), Y.double().numpy()
    w, b = weights.astype(np.float64).T, bias.astype(np.float64)
    for batch in batches:
        rows = list(batch)
        residual = x[rows] @ w + b - y[rows]
        w, b = w - 0.1 * x[rows].T @ residual / len(rows), b - 0.1 * residual.mean(axis=0)
    return np.append(w[:, 0], b)


def test_states_are_those_of_gradient_descent_by_its_formula() -> None:
    """Batches of unequal size: each is a mean over its own samples."""
    batches = [[0, 3, 5], [1, 2], [7, 8, 9, 10, 11]]
    torch.manual_seed(4)
    states = train_alone(problem(), batches)

    expected = by_hand(states[0]["weight"], states[0]["bias"], batches)
    assert len(states) == 4
    np.testing.assert_allclose(np.append(states[-1]["weight"], states[-1]["bias"]), expected, rtol=1e-14)


def test_clipping_acts_on_the_mean_over_the_whole_batch() -> None:
    """The step has the length rate times limit."""
    start, end = train_alone(problem(clip=1e-3), [range(12)])

    moved = np.append((end["weight"] - start["weight"]).ravel(), end["bias"] - start["bias"])
    assert np.linalg.norm(moved) == pytest.approx(0.1 * 1e-3, rel=1e-4)


def test_a_batch_without_samples_is_refused() -> None:
    """Its mean is not a number, and would be in all that follows."""
    with pytest.raises(ValueError, match="batch 1 has no samples"):
        train_alone(problem(), [[0], []])


@given(factor=st.floats(0.1, 8.0), seed=st.integers(0, 1000))
def test_an_update_of_the_wrong_length_is_told_by_its_factor(factor: float, seed: int) -> None:
    """Gradients that were summed over 4 ranks give 4, those divided twice 1/4."""
    generator = np.random.default_rng(seed)
    start = {"w": generator.standard_normal((3, 2)), "b": generator.standard_normal(4)}
    reference = {name: value + generator.standard_normal(value.shape) for name, value in start.items()}
    ours = {name: start[name] + factor * (reference[name] - start[name]) for name in start}

    assert compare(ours, reference, start).factor == pytest.approx(factor, rel=1e-9)


def test_an_update_in_another_direction_has_no_factor() -> None:
    """Then no length explains it."""
    start = {"w": np.zeros(3)}

    found = compare({"w": np.array([1.0, 0, 0])}, {"w": np.array([1.0, 1, 0])}, start)
    assert found.factor is None
    assert not found.equal()


def test_missing_extra_and_misshapen_tensors_are_differences() -> None:
    """None of them passes for equal."""
    reference = {"a": np.ones(2), "b": np.ones(2)}

    assert compare({"a": np.ones(2)}, reference).missing == ("b",)
    assert compare({**reference, "c": np.ones(1)}, reference).extra == ("c",)
    assert compare({"a": np.ones(3), "b": np.ones(2)}, reference).worst == ("a", math.inf)
    assert compare({"a": np.array([1, np.nan]), "b": np.ones(2)}, reference).worst == ("a", math.inf)
    assert compare(reference, reference).equal()
