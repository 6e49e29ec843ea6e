"""Checks of exercises L8.3 to L8.5: optimizers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from paceline.pool.warm_ranks import RankFailure
from paceline_course.checking import Answer, Wrong, learners, load_module, proves

updates = load_module(Path(__file__).with_name("updates.py"), "paceline_course_L8_updates")


# --- L8.3 to L8.5 -------------------------------------------------------------------------------------------------

SHAPES = ((4, 3, 3, 3), (4,), (6, 5), (6,))
STEPS = len(updates.FACTORS)
Weights = list[np.ndarray]


def start_of(seed: int, *, zero: bool = False) -> Weights:
    """Weights; with `zero` the last matrix is zero."""
    generator = np.random.default_rng(seed)
    weights = [generator.standard_normal(shape) for shape in SHAPES]
    return [weight * 0 if zero and index == 2 else weight for index, weight in enumerate(weights)]


def gradients(seed: int, step: int, factor: float = 1.0) -> Weights:
    """Of a step; the first tensor's times `factor`."""
    generator = np.random.default_rng((seed, step))
    found = [generator.standard_normal(shape) for shape in SHAPES]
    return [found[0] * factor, *found[1:]]


def optimized(
    name: str, seed: int, options: dict[str, Any], factor: float = 1.0, zero: bool = False, once: bool = False
) -> tuple[list[Weights], bool, bool]:
    """Over there: weights after each step of the learner's optimizer, whether gradients stayed what they were, and
    whether a parameter without a gradient did. With `once` the parameters come from a generator.
    """
    parameters = [nn.Parameter(torch.from_numpy(weight)) for weight in start_of(seed, zero=zero)]
    spare = nn.Parameter(torch.ones(3, 3, dtype=torch.float64))  # never has a gradient
    every = [*parameters, spare]
    optimizer = learners(name)((p for p in every) if once else every, **options)
    kept, path = True, []
    for step in range(STEPS):
        given = [torch.from_numpy(each) for each in gradients(seed, step, factor)]
        for p, gradient in zip(parameters, given, strict=True):
            p.grad = gradient.clone()
        optimizer.lr = options["lr"] * updates.FACTORS[step]
        optimizer.step()
        kept = kept and all(
            p.grad is not None and torch.equal(p.grad, each) for p, each in zip(parameters, given, strict=True)
        )
        path.append([p.detach().numpy().copy() for p in parameters])
    return path, kept, bool((spare == 1).all())


"""update(weights, gradients, state, step), in place; the state of each tensor is the update's own."""


def reference(seed: int, update: Callable[..., None], *, zero: bool = False, factor: float = 1.0) -> list[Weights]:
    """Weights after each step of a formula in NumPy."""
    weights = start_of(seed, zero=zero)
    state: list[Any] = [None] * len(weights)
    path = []
    for step in range(STEPS):
        update(weights, gradients(seed, step, factor), state, step)
        path.append(list(weights))
    return path


def same(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    """Within 1e-9."""
    return all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


def judge_steps(
    answer: Answer,
    name: str,
    options: dict[str, Any],
    right: Callable[..., None],
    mistakes: dict[str, Callable[..., None]],
) -> None:
    """Five steps against the formula; a known mistake is named."""
    seed = int(answer.draw.integers(1, 10_000))
    expected = reference(seed, right)
    ran = f"{STEPS} steps on tensors of shape {', '.join(str(shape) for shape in SHAPES)} in float64"
    # A generator, as net.parameters() gives it. Only where that goes wrong, a list shows whether it was the reason.
    given = "nothing but an error"
    try:
        got, kept, still = answer.call(optimized, name, seed, options, 1.0, False, True)
        if kept and still and same(got[-1], expected[-1]):
            return
        given = "other weights"
    except RankFailure as failure:
        _name_no_grad(failure, answer, ran)
    got, kept, still = answer.call(optimized, name, seed, options)
    if not kept:
        raise Wrong("changed-gradient", ran=ran, expected="p.grad as it was", got="another")
    if not still:
        raise Wrong("without-gradient", ran=ran, expected="a parameter without a gradient as it was", got="another")
    if same(got[-1], expected[-1]):
        ran = f"{ran}, with parameters from a generator"
        raise Wrong("generator", ran=ran, expected="the same as with a list", got=given)
    first = next(step for step in range(STEPS) if not same(got[step], expected[step]))
    # Of a rate that changes only the third step tells.
    message = {0: "optimizer", 1: "later-step"}.get(first, "later-rate")
    if same(got[-1], start_of(seed)):
        message = "nothing-moves"
    message = next((key for key, update in mistakes.items() if same(got[-1], reference(seed, update)[-1])), message)
    off = next(index for index in range(len(SHAPES)) if not same([got[first][index]], [expected[first][index]]))
    away = np.linalg.norm(got[first][off] - expected[first][off]) / np.linalg.norm(expected[first][off])
    shown = f"from step {first + 1} on: the tensor {SHAPES[off]} is off by {float(away):.1g}"
    raise Wrong(message, ran=ran, expected="within 1e-9", got=shown)


def _name_no_grad(failure: RankFailure, answer: Answer, ran: str) -> None:
    """Torch's words for an update outside of no_grad say nothing of it."""
    if "a leaf Variable that requires grad" in failure.message:
        lines = re.findall(rf'/{re.escape(answer.path.name)}", line (\d+)', failure.traceback)
        where = f"{answer.path.name}:{lines[-1]}" if lines else ""
        raise Wrong("no-grad", ran=ran, expected="an update", got=failure.message, where=where)


@proves("L8.3", "five steps agree with torch's SGD, and gradients stay what they are")
def momentum(answer: Answer) -> None:
    """The formula, which is torch's own."""
    lr, mu, decay = 0.05, 0.9, 0.1
    seed = 1
    parameters = [nn.Parameter(torch.from_numpy(weight)) for weight in start_of(seed)]
    torchs = torch.optim.SGD(parameters, lr=lr, momentum=mu, weight_decay=decay)
    for step in range(STEPS):
        for p, gradient in zip(parameters, gradients(seed, step), strict=True):
            p.grad = torch.from_numpy(gradient)
        torchs.param_groups[0]["lr"] = lr * updates.FACTORS[step]
        torchs.step()
    right = updates.momentum_update(lr, mu, decay)
    assert same([p.detach().numpy() for p in parameters], reference(seed, right)[-1])
    names = ("averaged", "no-decay", "forgotten", "fixed-rate", "rate-inside")
    mistakes = {name: updates.momentum_update(lr, mu, decay, mistake=name) for name in names}
    judge_steps(answer, "Momentum", {"lr": lr, "momentum": mu, "decay": decay}, right, mistakes)


@proves("L8.4", "five steps agree with the formula")
def lars(answer: Answer) -> None:
    """Filters, matrices, biases."""
    numbers = (0.5, 0.9, 0.01, 0.02)
    options = dict(zip(("lr", "momentum", "decay", "coefficient"), numbers, strict=True))
    names = ("biases", "trust", "norm-of-sum", "rate-behind", "both-behind", "forgotten", "fixed-rate")
    mistakes = {name: updates.lars_update(*numbers, mistake=name) for name in names}
    judge_steps(answer, "LARS", options, updates.lars_update(*numbers), mistakes)


@proves("L8.4", "a gradient that is 1,000 times as long moves its layer as before, and zeros are no trouble")
def lars_invariance(answer: Answer) -> None:
    """Without decay; then a matrix that is zero at first, and a filter whose gradient is zero."""
    seed = int(answer.draw.integers(1, 10_000))
    options = {"lr": 0.5, "momentum": 0.9, "decay": 0.0, "coefficient": 0.02}
    plain, long = (answer.call(optimized, "LARS", seed, options, factor)[0][-1] for factor in (1.0, 1000.0))
    if not same(plain[:1], long[:1]):
        raise Wrong("trust", ran="a gradient that is 1,000 times as long", expected="the same step", got="another")
    got = answer.call(optimized, "LARS", seed, options, 1.0, True)[0][-1]
    if not same(got, reference(seed, updates.lars_update(0.5, 0.9, 0.0, 0.02), zero=True)[-1]):
        raise Wrong("zero-norm", ran="a matrix of zeros", expected="a first step with ratio 1", got=_step_of(got, 2))
    # With decay there is a step to take, so that a ratio other than 1 shows.
    got = answer.call(optimized, "LARS", seed, {**options, "decay": 0.01}, 0.0)[0][-1]
    if not same(got, reference(seed, updates.lars_update(0.5, 0.9, 0.01, 0.02), factor=0.0)[-1]):
        ran = "a filter whose gradient is zero, with decay"
        raise Wrong("zero-gradient", ran=ran, expected="steps of the decay, with ratio 1", got=_step_of(got, 0))


def _step_of(got: Weights, index: int) -> str:
    if not all(np.isfinite(each).all() for each in got):
        return "nan"
    return "no step" if not got[index].any() else "other steps"


@proves("L8.5", "five steps agree with the formula")
def novograd(answer: Answer) -> None:
    """With decay."""
    lr, b1, b2, decay = 0.02, 0.9, 0.6, 0.05
    names = ("element-wise", "not-squared", "first-step", "decay-inside", "averaged-sizes", "order", "forgotten")
    names = (*names, "fixed-rate", "rate-inside")
    mistakes = {name: updates.novograd_update(lr, b1, b2, decay, mistake=name) for name in names}
    options = {"lr": lr, "betas": (b1, b2), "decay": decay}
    judge_steps(answer, "NovoGrad", options, updates.novograd_update(lr, b1, b2, decay), mistakes)
