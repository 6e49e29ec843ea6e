"""Checks of lab 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline_course.checking import Answer, Message, Wrong, learners, proves

MESSAGES = {
    "sum-not-mean": Message(
        "it is the gradient of the sum over the points, not of their mean", "the number of points in the denominator"
    ),
    "factor-two": Message("the derivative of a square has a factor 2", "the chain rule on (w x + b - y)²"),
    "sign": Message("it points the other way", "the order of prediction and y in the residual"),
    "gradient": Message("a derivative is another one", "each of the two on paper, for one point first"),
    "one-bad-epoch": Message(
        "one epoch that was worse ended the training", "the best of the last `patience` epochs, not the last one alone"
    ),
    "nan-goes-on": Message(
        "a loss that is no number did not end it: comparisons with nan are False", "math.isfinite, before anything else"
    ),
    "early-nan": Message(
        "a loss that is no number did not end it while there were few losses",
        "math.isfinite, before the number of losses",
    ),
    "absolute": Message(
        "the tolerance is taken as a difference, so that it depends on the size of the loss",
        "a fraction: best_before * (1 - tolerance)",
    ),
    "too-early": Message("it stopped before the rule allows", "how many epochs stand on each side of the comparison"),
    "too-late": Message("it stopped later than the rule says", "how many epochs stand on each side of the comparison"),
    "not-a-bool": Message("what came back is neither True nor False", "the return statements"),
    "empty-batch": Message(
        "there is a batch of no points, whose mean is nan", "the number of batches when size divides n"
    ),
    "lost-rows": Message("points are never seen", "the last, smaller batch"),
    "repeated-rows": Message("points come twice while others are missing", "one permutation, cut into pieces"),
    "too-large": Message("a batch is larger than was asked for", "where each piece ends"),
    "not-shuffled": Message("the order is that of the data", "generator.permutation"),
    "same-order": Message(
        "every epoch has the same order", "the order is drawn at each call, from the given generator"
    ),
    "other-random": Message(
        "the order does not come from the given generator", "generator.permutation, and no other random numbers"
    ),
    "standard-deviation": Message("it is the standard deviation, not the variance", "np.std and np.var"),
    "of-points": Message("it is the variance over points, not over batches", "the mean over each batch comes first"),
    "no-variance": Message("all batches are the same one", "where the batch is drawn: inside the loop"),
    "over-components": Message(
        "the variance mixes both components", "the axis: the variance of each component, then their sum"
    ),
    "without-replacement": Message(
        "no point comes twice in a batch: that is the variance without replacement", "generator.integers"
    ),
    "variance": Message("the variance is another one", "with replacement; the variance over batches; the sum of both"),
}


def call_gradient(x: Any, y: Any, w: float, b: float) -> tuple[float, float]:
    """Over there."""
    dw, db = learners("gradient")(x, y, w, b)
    return float(dw), float(db)


@proves("L1.1", "the gradient equals finite differences on random points")
def gradient(answer: Answer) -> None:
    """Central differences of the mean squared error."""
    for samples in (int(answer.draw.integers(20, 60)), int(answer.draw.integers(20, 60)), 1):
        x, y = answer.draw.normal(size=(2, samples)) + 0.5
        w, b = answer.draw.normal(size=2)
        expected = _finite_differences(x, y, w, b)
        got = np.array(answer.call(call_gradient, x, y, w, b))
        ran = f"{samples} random points, w = {w:.3f}, b = {b:.3f}"
        for factor, message in ((1.0, ""), (samples, "sum-not-mean"), (0.5, "factor-two"), (-1.0, "sign")):
            if np.allclose(got, factor * expected, rtol=1e-4, atol=1e-6):
                if message:
                    raise Wrong(message, ran=ran, expected=_pair(expected), got=_pair(got))
                break
        else:
            raise Wrong("gradient", ran=ran, expected=_pair(expected), got=_pair(got))


def _finite_differences(x: np.ndarray, y: np.ndarray, w: float, b: float) -> np.ndarray:
    def loss(w: float, b: float) -> float:
        return float(np.mean((w * x + b - y) ** 2))

    step = 1e-5
    along_w = loss(w + step, b) - loss(w - step, b)
    along_b = loss(w, b + step) - loss(w, b - step)
    return np.array([along_w, along_b]) / (2 * step)


def _pair(values: np.ndarray) -> str:
    return f"({values[0]:.5f}, {values[1]:.5f})"


def stop_at(curves: Sequence[Sequence[float]], patience: int) -> list[Any]:
    """Over there: for each curve the number of epochs after which the answer says stop, None for never."""
    should_stop = learners("should_stop")
    found: list[Any] = []
    for curve in curves:
        end = None
        for epochs in range(1, len(curve) + 1):
            said = should_stop(list(curve[:epochs]), patience=patience)
            if not isinstance(said, bool | np.bool_):
                return [repr(said)]
            if said:
                end = epochs
                break
        found.append(end)
    return found


@proves("L1.2", "it goes on while the loss falls, and stops at the epoch that the rule names")
def stop_rule(answer: Answer) -> None:
    """Five curves: falling, falling with noise, flat from some epoch on, tiny losses, worse from some epoch on."""
    draw = answer.draw
    patience = int(draw.integers(3, 7))
    turn = int(draw.integers(8, 20))
    falling = [5.0 * 0.97**epoch for epoch in range(60)]
    # Every other epoch is worse than the one before, and the trend falls by far more than the tolerance.
    noisy = [5.0 * 0.9**epoch * (1.0 + 0.15 * (epoch % 2)) for epoch in range(60)]
    flat = [2.0 * 0.9 ** min(epoch, turn) for epoch in range(60)]
    tiny = [1e-4 * 0.9 ** min(epoch, turn) for epoch in range(60)]
    rising = [2.0 * 0.9**epoch if epoch <= turn else 2.0 * 0.9**turn * 1.1 ** (epoch - turn) for epoch in range(60)]
    names = ["falling by 3 % an epoch", "falling, every other epoch worse than the last", "flat", "tiny", "rising"]
    names[2:] = [f"falling until epoch {turn + 1}, then {name}" for name in ("flat", "flat at 1e-5", "rising")]
    curves = [falling, noisy, flat, tiny, rising]
    expected = [None, None, turn + 1 + patience, turn + 1 + patience, turn + 1 + patience]
    got = answer.call(stop_at, curves, patience)
    if isinstance(got[0], str):
        raise Wrong("not-a-bool", ran="a list of falling losses", expected="False", got=got[0])
    for name, should, did in zip(names, expected, got, strict=True):
        if did != should:
            ran = f"a loss {name}; patience {patience}, tolerance 0.001"
            message = _stop_message(should, did, noisy=name == names[1], tiny=name == names[3])
            raise Wrong(message, ran=ran, expected=_ends(should), got=_ends(did))


def _stop_message(should: int | None, did: int | None, *, noisy: bool, tiny: bool) -> str:
    if noisy:
        return "one-bad-epoch"
    if tiny:
        return "absolute"
    early = should is None or (did is not None and did < should)
    return "too-early" if early else "too-late"


def _ends(epochs: int | None) -> str:
    return "it goes on" if epochs is None else f"it stops after {epochs} epochs"


@proves("L1.2", "a loss that is no number ends it at once")
def not_a_number(answer: Answer) -> None:
    """nan and infinity, early and late."""
    patience, late = 3, int(answer.draw.integers(5, 12))
    # As long as there are not more losses than patience, only this condition counts: those curves come last.
    cases = [(at, value) for at in (late, int(answer.draw.integers(1, patience)), 0) for value in (math.nan, math.inf)]
    curves = [[1.0 / (epoch + 1) for epoch in range(at)] + [value] * 20 for at, value in cases]
    for (at, value), did in zip(cases, answer.call(stop_at, curves, patience), strict=True):
        if did != at + 1:
            falls = (
                f"falls for {at} epochs and is {value} from then on" if at else f"is {value} from the first epoch on"
            )
            message = "nan-goes-on" if at == late else "early-nan"
            ran = f"a loss that {falls}; patience {patience}"
            raise Wrong(message, ran=ran, expected=_ends(at + 1), got=_ends(did))


def epochs_of(cases: Sequence[tuple[int, int, int]]) -> list[list[list[int]]]:
    """Over there: the batches of an epoch for each (n, size, seed), as lists."""
    batches = learners("batches")
    return [
        [[int(i) for i in rows] for rows in batches(n, size, np.random.default_rng(seed))] for n, size, seed in cases
    ]


@proves("L1.3", "each point comes exactly once, in batches of the right size, none of them empty")
def coverage(answer: Answer) -> None:
    """Sizes that divide n, that do not, and that are larger than n."""
    draw = answer.draw
    size = int(draw.integers(2, 17))
    cases = [(size * int(draw.integers(2, 9)), size), (size * 3 + 1, size), (5, 8), (1, 1), (size, size)]
    cases += [(int(draw.integers(1, 201)), int(draw.integers(1, 40))) for _ in range(15)]
    found = answer.call(epochs_of, [(n, size, int(draw.integers(1000))) for n, size in cases])
    for (n, size), epoch in zip(cases, found, strict=True):
        ran = f"{n} points in batches of at most {size}"
        seen = [index for rows in epoch for index in rows]
        if any(not rows for rows in epoch):
            raise Wrong("empty-batch", ran=ran, expected=f"{math.ceil(n / size)} batches", got=_sizes(epoch))
        if any(len(rows) > size for rows in epoch):
            raise Wrong("too-large", ran=ran, expected=f"at most {size}", got=_sizes(epoch))
        if len(set(seen)) < len(seen):
            twice = sorted({index for index in seen if seen.count(index) > 1})[:5]
            raise Wrong("repeated-rows", ran=ran, expected="each index once", got=f"more than once: {twice}")
        if missing := sorted(set(range(n)) - set(seen)):
            raise Wrong("lost-rows", ran=ran, expected=f"0 to {n - 1}", got=f"missing: {missing[:5]}")


def _sizes(epoch: Sequence[Sequence[int]]) -> str:
    return f"batches of {', '.join(str(len(rows)) for rows in epoch[-4:])} at the end"


def two_epochs(n: int, size: int, seed: int) -> list[list[int]]:
    """Over there: the order of two epochs from one generator."""
    generator = np.random.default_rng(seed)
    return [[int(i) for rows in learners("batches")(n, size, generator) for i in rows] for _ in range(2)]


@proves("L1.3", "the order is random, and another one in each epoch")
def order(answer: Answer) -> None:
    """150 points: the chance that two random orders agree is nil."""
    n = 150
    first, second = answer.call(two_epochs, n, 16, answer.seed)
    ran = f"two epochs of {n} points with one generator"
    if first == list(range(n)):
        raise Wrong("not-shuffled", ran=ran, expected="a random order", got=f"{first[:6]} ...")
    if first == second:
        raise Wrong("same-order", ran=ran, expected="different orders", got=f"{first[:6]} ... each time")
    again, _ = answer.call(two_epochs, n, 16, answer.seed)
    other, _ = answer.call(two_epochs, n, 16, answer.seed + 1)
    if first == other:
        ran = f"epochs of {n} points with generators of different seeds"
        raise Wrong("other-random", ran=ran, expected="different orders", got=f"{first[:6]} ... with both")
    if first != again:
        ran = f"epochs of {n} points with two generators of the same seed"
        raise Wrong("other-random", ran=ran, expected="the same order", got=f"{first[:3]} ... and {again[:3]} ...")


def variances(x: Any, y: Any, w: float, b: float, sizes: Sequence[int], repeats: int, seed: int) -> list[float]:
    """Over there: the answer's variance at each size."""
    generator = np.random.default_rng(seed)
    return [float(learners("gradient_variance")(x, y, w, b, size, repeats, generator)) for size in sizes]


@proves("L1.4", "the variance is the exact one, and falls as 1 / size")
def noise_law(answer: Answer) -> None:
    """With replacement the variance is that of one point's gradient, divided by the size."""
    sizes, repeats = [1, 4, 16, 64], 4000
    x, y, w, b, laws = _telling_points(answer.draw, sizes)
    got = answer.call(variances, x, y, w, b, sizes, repeats, answer.seed)
    ran = f"batches of {sizes} from 80 points, {repeats} each"
    expected = _list(laws[""])
    if np.allclose(got, 0, atol=1e-9):
        raise Wrong("no-variance", ran=ran, expected=expected, got=_list(got))
    # 4,000 draws know a variance to some 5 %; 20 % at size 1, where the tails are heaviest.
    message = min(laws, key=lambda law: _apart(got, laws[law]))
    if _apart(got, laws[message]) > math.log(1.35):
        raise Wrong("variance", ran=ran, expected=expected, got=_list(got))
    if message:
        raise Wrong(message, ran=ran, expected=expected, got=_list(got))
    slope = np.polyfit(np.log(sizes), np.log(got), 1)[0]
    if abs(slope + 1) > 0.15:
        raise Wrong("variance", ran=ran, expected="a slope of -1 in log-log", got=f"{slope:.2f}")


def _telling_points(draw: np.random.Generator, sizes: Sequence[int]) -> tuple[Any, Any, float, float, dict[str, Any]]:
    """Points and a line that 4,000 batches can judge: drawn again where two laws give nearly the same numbers (7 in 100
    draws), and where a few points make most of the variance, which so many batches do not know well (1 in 8).
    """
    while True:
        x, y = draw.normal(size=(2, 80))
        w, b = draw.normal(size=2)
        residual = w * x + b - y
        square = (residual * x - np.mean(residual * x)) ** 2 + (residual - np.mean(residual)) ** 2
        if np.mean(square**2) > 8 * np.mean(square) ** 2:
            continue
        laws = _laws(x, residual, np.array(sizes))
        if min(_apart(one, other) for one, other in itertools.combinations(laws.values(), 2)) > math.log(1.5):
            return x, y, w, b, laws


def _laws(x: np.ndarray, residual: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
    """The variance at each size by the message that it stands for, and by none the right one."""
    n = len(x)
    by_w, by_b = np.var(2 * residual * x), np.var(2 * residual)
    one = by_w + by_b
    # The variance over both components as if they were draws of one number.
    between = np.var([np.mean(2 * residual * x), np.mean(2 * residual)])
    return {
        "": one / sizes,
        "of-points": np.full(len(sizes), one),
        "standard-deviation": (math.sqrt(by_w) + math.sqrt(by_b)) / np.sqrt(sizes),
        "without-replacement": one / sizes * (n - sizes) / (n - 1),
        "over-components": one / sizes / 2 + between,
    }


def _apart(one: Any, other: Any) -> float:
    """The largest ratio, as a logarithm; infinite where one of them is no positive number."""
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if not ((one > 0).all() and (other > 0).all()):
        return math.inf
    return float(np.abs(np.log(one / other)).max())


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
