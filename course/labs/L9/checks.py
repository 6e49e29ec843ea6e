"""Checks of lab 9: closed forms and planted values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from paceline_course.checking import Answer, Message, Wrong, learners, proves

MESSAGES = {
    "whole-tensor": Message("each tensor has the norm of the weights, not each filter", "p[i] and d[i], one by one"),
    "not-scaled": Message("the direction does not grow with the weights", "the factor for each filter"),
    "biases": Message("tensors of one dimension move as well", "their direction is zero"),
    "direction": Message("a filter's norm is another one", "the norm of p[i] over that of d[i]"),
    "not-random": Message("the direction is always the same", "the generator"),
    "trace": Message("the parameters are not what they were", "a copy, written back at the end, whatever happens"),
    "one-sided": Message("the line begins at the weights", "from -span to span"),
    "slice": Message("losses along the line are others", "the points, and where each one lies"),
    "stuck": Message("the search does not leave a minimum, where the gradient is zero", "what the sign of 0 is"),
    "outside": Message("the search leaves the box", "clip after each step, for each weight"),
    "box": Message("the box has another size", "epsilon * (|w| + 1)"),
    "formula": Message("the number is scaled in another way", "100 (max - L) / (1 + L)"),
    "sharpness": Message("the sharpness is another one", "the largest loss that was seen, and the formula"),
    "not-normalised": Message("the vector grows or shrinks from step to step", "its length, after each product"),
    "always-converged": Message("it says that it converged when it did not", "what is returned at the end of the loop"),
    "eigenvalue": Message("the eigenvalue is another one", "the estimate v @ product(v), for a unit vector"),
    "mean-of-quotients": Message("it averages quotients", "averages first, one quotient at the end"),
    "lengths": Message("it uses lengths instead of their squares", "the equations hold for squares"),
    "drowned": Message("a gradient that drowns in noise has a negative noise scale", "the case |G|² <= 0"),
    "scale": Message("the noise scale is another one", "the two equations"),
}


# --- L9.1 ---------------------------------------------------------------------------------------------------------


def directions(arrays: Sequence[np.ndarray], seeds: Sequence[int]) -> list[list[np.ndarray]]:
    """Over there."""
    parameters = [torch.from_numpy(array) for array in arrays]
    found = []
    for seed in seeds:
        direction = learners("normalised_direction")(parameters, torch.Generator().manual_seed(seed))
        found.append([each.detach().numpy() for each in direction])
    return found


@proves("L9.1", "each filter of the direction is as long as that of the weights, and biases do not move")
def direction(answer: Answer) -> None:
    """A convolution, a linear layer, a bias; twice, and ten times as large."""
    draw = answer.draw
    arrays = [draw.normal(size=shape) * scale for shape, scale in (((4, 3, 3, 3), 0.5), ((5, 7), 2.0), ((5,), 1.0))]
    ran = "weights of shape (4, 3, 3, 3) and (5, 7), a bias of shape (5,)"
    first, second = answer.call(directions, arrays, [1, 2])
    if np.allclose(first[1], second[1]):
        raise Wrong("not-random", ran=ran, expected="two seeds, two directions", got="the same")
    if np.any(first[2] != 0):
        raise Wrong("biases", ran=ran, expected="zeros for the bias", got=np.round(first[2], 3))
    for array, found in zip(arrays[:2], first[:2], strict=True):
        norms = [np.linalg.norm(each) for each in array]
        got = [np.linalg.norm(each) for each in found]
        if not np.allclose(norms, got, rtol=1e-5):
            whole = math.isclose(float(np.linalg.norm(array)), float(np.linalg.norm(found)), rel_tol=1e-5)
            (larger,) = answer.call(directions, [10 * each for each in arrays], [1])
            same = np.allclose(larger[0], first[0])
            message = "whole-tensor" if whole else "not-scaled" if same else "direction"
            raise Wrong(message, ran=ran, expected=f"norms {np.round(norms, 3)}", got=f"{np.round(got, 3)}")


# --- L9.2 ---------------------------------------------------------------------------------------------------------


def sliced(
    arrays: Sequence[np.ndarray], ways: Sequence[np.ndarray], span: float, points: int, fail: bool
) -> tuple[list[float], list[np.ndarray], bool]:
    """Over there: losses of a known function, the parameters afterwards, whether the error came through."""
    parameters = [torch.nn.Parameter(torch.from_numpy(array.copy())) for array in arrays]
    calls = [0]

    def loss() -> Any:
        calls[0] += 1
        if fail and calls[0] == 3:
            raise RuntimeError("the loss failed")
        return sum((k + 1) * (p.square().sum() + p.sum()) for k, p in enumerate(parameters))

    losses: list[float] = []
    failed = False
    try:
        way = [torch.from_numpy(each) for each in ways]
        losses = [float(value) for value in learners("slice_1d")(loss, parameters, way, span, points)]
    except RuntimeError as error:
        failed = str(error) == "the loss failed"
        if not failed:
            raise
    return losses, [p.detach().numpy() for p in parameters], failed


@proves("L9.2", "losses along the line are those of the formula, and the parameters stay what they were")
def line(answer: Answer) -> None:
    """A quadratic function; once the loss fails in the middle."""
    draw = answer.draw
    arrays = [draw.normal(size=(3, 4)) / 3, draw.normal(size=5) / 7]
    ways = [draw.normal(size=(3, 4)), draw.normal(size=5)]
    span, points = float(draw.uniform(0.3, 2)), int(draw.integers(5, 12))
    losses, after, _ = answer.call(sliced, arrays, ways, span, points, False)
    ran = f"{points} points from -{span:.2f} to {span:.2f} on a quadratic function"
    if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, after, strict=True)):
        raise Wrong("trace", ran=ran, expected="the same bits afterwards", got="others")
    expected = [_known(arrays, ways, t) for t in np.linspace(-span, span, points)]
    # Places in float32 are as good: beside the largest loss, since near 0 a loss has no digits of its own.
    near = 1e-5 * max(map(abs, expected))
    if len(losses) != points or not np.allclose(losses, expected, rtol=0, atol=near):
        half = [_known(arrays, ways, t) for t in np.linspace(0, span, points)]
        one_sided = len(losses) == points and np.allclose(losses, half, rtol=0, atol=near)
        got = f"{len(losses)} losses, {losses[:3]} ..."
        raise Wrong("one-sided" if one_sided else "slice", ran=ran, expected=f"{expected[:3]} ...", got=got)
    _, after, failed = answer.call(sliced, arrays, ways, span, points, True)
    if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, after, strict=True)) or not failed:
        got = "others" if failed else "the error did not come through"
        raise Wrong("trace", ran="a loss that fails in the middle", expected="the same bits afterwards", got=got)


def _known(arrays: Sequence[np.ndarray], ways: Sequence[np.ndarray], t: float) -> float:
    moved = [array + t * way for array, way in zip(arrays, ways, strict=True)]
    return float(sum((k + 1) * (np.sum(p**2) + np.sum(p)) for k, p in enumerate(moved)))


# --- L9.3 ---------------------------------------------------------------------------------------------------------


def sharpnesses(cases: Sequence[tuple[np.ndarray, np.ndarray, float, float]]) -> list[tuple[float, float]]:
    """Over there: the answer, and how far the search went out of the box, in sizes of the box."""
    found = []
    for curvature, w, level, epsilon in cases:
        size = epsilon * (np.abs(w) + 1)
        farthest = [0.0]

        def loss_and_grad(
            v: Any, curvature: Any = curvature, w: Any = w, level: float = level, size: Any = size, out: Any = farthest
        ) -> tuple[float, Any]:
            v = np.asarray(v)
            out[0] = max(out[0], float(np.max(np.abs(v - w) / size)))
            return level + 0.5 * float(np.sum(curvature * (v - w) ** 2)), curvature * (v - w)

        value = float(learners("epsilon_sharpness")(loss_and_grad, w, epsilon))
        found.append((value, farthest[0]))
    return found


@proves("L9.3", "it comes within 1 % of the known maximum, without leaving the box")
def box(answer: Answer) -> None:
    """Separable quadratic valleys, whose maximum is in a corner."""
    draw = answer.draw
    cases = [
        (
            draw.uniform(0.1, 50, 8),
            draw.normal(size=8) * 2,
            float(draw.uniform(0.1, 1)),
            float(draw.choice([1e-3, 0.01])),
        )
        for _ in range(6)
    ]
    for (curvature, w, level, epsilon), (got, farthest) in zip(cases, answer.call(sharpnesses, cases), strict=True):
        size = epsilon * (np.abs(w) + 1)
        rise = 0.5 * float(np.sum(curvature * size**2))
        expected = 100 * rise / (1 + level)
        ran = f"a quadratic valley in 8 dimensions, epsilon = {epsilon}"
        if farthest > 1.0001:
            raise Wrong("outside", ran=ran, expected="inside the box", got=f"{farthest:.2f} times its size")
        if math.isclose(got, expected, rel_tol=0.01):
            continue
        smaller = 100 * 0.5 * float(np.sum(curvature * (epsilon * np.abs(w)) ** 2)) / (1 + level)
        message = "sharpness"
        if got == 0:
            message = "stuck"
        elif math.isclose(got, expected / 100, rel_tol=0.02):
            message = "formula"
        elif math.isclose(got, smaller, rel_tol=0.02):
            message = "box"
        raise Wrong(message, ran=ran, expected=f"{expected:.5f} %", got=f"{got:.5f}")


# --- L9.4 ---------------------------------------------------------------------------------------------------------


def eigenvalues(matrices: Sequence[np.ndarray], most: int, seed: int) -> list[tuple[float, bool, float]]:
    """Over there: estimate, converged, and the largest norm of what was multiplied."""
    found = []
    for matrix in matrices:
        norms: list[float] = []

        def product(v: Any, matrix: Any = matrix, norms: list[float] = norms) -> Any:
            norms.append(float(np.linalg.norm(v)))
            return matrix @ v

        with np.errstate(all="ignore"):
            estimate, converged = learners("top_eigenvalue")(
                product, len(matrix), np.random.default_rng(seed), tolerance=1e-8, most=most
            )
        found.append((float(estimate), bool(converged), max(abs(math.log10(norm)) for norm in norms if norm > 0)))
    return found


@proves("L9.4", "largest eigenvalues of known matrices are found, and a search without an end says so")
def power_iteration(answer: Answer) -> None:
    """Matrices with a gap; and one product budget that is too small."""
    draw = answer.draw
    matrices, tops = [], []
    for scale in (1e-2, 1.0, 1e3):
        basis, _ = np.linalg.qr(draw.normal(size=(30, 30)))
        values = np.append(np.linspace(0.0, 0.8, 29), 1.0) * scale
        matrices.append(basis @ np.diag(values) @ basis.T)
        tops.append(scale)
    for top, (estimate, converged, spread) in zip(
        tops, answer.call(eigenvalues, matrices, 1000, answer.seed), strict=True
    ):
        ran = f"a matrix of 30 x 30 whose largest eigenvalue is {top:g}"
        if spread > 1.0:
            raise Wrong("not-normalised", ran=ran, expected="unit vectors", got=f"lengths up to 10^{spread:.0f}")
        if not math.isclose(estimate, top, rel_tol=1e-4):
            raise Wrong("eigenvalue", ran=ran, expected=f"{top:g}", got=f"{estimate:.6g}")
        if not converged:
            raise Wrong("eigenvalue", ran=ran, expected="converged", got="not converged")
    ((_, converged, _),) = answer.call(eigenvalues, matrices[:1], 3, answer.seed)
    if converged:
        raise Wrong("always-converged", ran="at most 3 products", expected="not converged", got="converged")


# --- L9.5 ---------------------------------------------------------------------------------------------------------


def scales(cases: Sequence[tuple[int, list[float], int, list[float]]]) -> list[float]:
    """Over there."""
    return [float(learners("noise_scale")(*case)) for case in cases]


@proves("L9.5", "planted noise scales are found within 15 %, and a drowned gradient gives infinity")
def noise(answer: Answer) -> None:
    """Gradients with a known mean and covariance in 200 dimensions."""
    draw = answer.draw
    cases, planted = [], []
    for _ in range(4):
        small, large = int(draw.choice([8, 16])), int(draw.choice([64, 128]))
        mean = draw.normal(size=200)
        # So much noise that |G|² of a single pair of measurements is often below zero.
        length = float(draw.uniform(0.06, 0.08))
        mean *= length / np.linalg.norm(mean)
        deviation = 0.1
        truth = 200 * deviation**2 / length**2
        squares = [
            (np.linalg.norm(mean + deviation / math.sqrt(size) * draw.normal(size=(4000, 200)), axis=1) ** 2).tolist()
            for size in (small, large)
        ]
        cases.append((small, squares[0], large, squares[1]))
        planted.append(truth)
    found = answer.call(scales, cases)
    for (small, small_squares, large, large_squares), truth, got in zip(cases, planted, found, strict=True):
        ran = f"4,000 gradients each at batches of {small} and {large}; planted {truth:.1f}"
        if abs(got / truth - 1) <= 0.15:
            continue
        first, second = (float(np.mean(np.sqrt(values))) for values in (small_squares, large_squares))
        lengths = _one(small, first, large, second)
        each = [_one(small, a, large, b) for a, b in zip(small_squares, large_squares, strict=True)]
        message = "scale"
        if math.isclose(got, lengths, rel_tol=1e-6):
            message = "lengths"
        elif math.isclose(got, float(np.mean(each)), rel_tol=0.01):
            message = "mean-of-quotients"
        raise Wrong(message, ran=ran, expected=f"{truth:.1f}, within 15 %", got=f"{got:.4g}")
    (drowned,) = answer.call(scales, [(8, [1.0] * 10, 64, [0.1] * 10)])
    if drowned != math.inf:
        raise Wrong("drowned", ran="squares 1 at batch 8 and 0.1 at batch 64", expected="inf", got=drowned)


def _one(small: int, at_small: float, large: int, at_large: float) -> float:
    square = (large * at_large - small * at_small) / (large - small)
    return (at_small - at_large) / (1 / small - 1 / large) / square if square > 0 else 0.0
