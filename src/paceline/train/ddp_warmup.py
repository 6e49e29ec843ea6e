"""Throw-away steps before the first real one, and why they are needed for exact resumption.

DDP groups gradients into buckets; after its first backward it groups them anew, in the order in which gradients
became ready. The place of a number in its bucket decides the order in which a ring all-reduce adds it up, so from
three ranks on the first step of a process rounds differently from all later ones. A resumed run would have that
first step somewhere in the middle. Here every start does it with steps that leave no trace, so that every real step
has the final buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paceline.checkpoint.state import capture_random, restore_random, same_random
from paceline.parallel import agree
from paceline.parallel.reduce import all_objects
from paceline.records.errors import PacelineError
from paceline.tasks.contract import gradient_problem, loss_problem
from paceline.tasks.task import Loss
from paceline.train.objective import Objective

STEPS = 2
"""One to learn the order, one whose forward builds the buckets anew."""


def warm_up_ddp(ddp: nn.Module, objective: Objective, batch: Any) -> None:
    """Run the throw-away steps; weights, buffers, gradients and random state are as before."""
    with leaving_no_trace(objective):
        for _ in range(STEPS):
            ddp(batch, 1.0, (0.0, 0.0, 0.0)).backward()
            objective.zero_grad(set_to_none=True)


@dataclass(frozen=True)
class Probe:
    """What one forward and backward has shown of a model; names are of parameters, sorted, the same on every rank.

    Attributes:
        unreached: without a gradient on some rank.
        sparse: with a sparse gradient on some rank.
        dense: with a dense one on some rank.
        draws: whether the model or the loss draws random numbers in training.
        unsaved: attributes of modules that a forward changes and no checkpoint holds, as `encoder.calls`.
    """

    unreached: list[str]
    sparse: list[str]
    dense: list[str]
    draws: bool
    unsaved: list[str]


def inspect_loss(objective: Objective, batch: Any, task: str, samples: int | None) -> Probe:
    """Run the loss once on its own: check its contract, and see what gradients it gives.

    Every rank calls this together. All agree that the loss is as it should be before any goes on to its backward,
    which synchronised batch norms make a message of.

    Raises:
        PacelineError: the loss does not keep its contract, on any rank.
    """

    def checked() -> Loss:
        loss = objective.compute(batch)
        check_loss(loss, task, samples)
        return loss

    before = capture_random()
    with leaving_no_trace(objective) as changed:
        loss = agree.all_or_none(checked)
        drawn = not same_random(before, capture_random())
        unsaved = changed()
        named = [(name, p) for name, p in objective.model.named_parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss.sum, [p for _, p in named], allow_unused=True)
    kinds = {
        name: "unreached" if gradient is None else "sparse" if gradient.is_sparse else "dense"
        for (name, _), gradient in zip(named, gradients, strict=True)
    }
    everywhere = all_objects((kinds, drawn, unsaved))
    by_kind: dict[str, set[str]] = {kind: set() for kind in ("unreached", "sparse", "dense")}
    for own, _, _ in everywhere:
        for name, kind in own.items():
            by_kind[kind].add(name)
    return Probe(
        **{kind: sorted(names) for kind, names in by_kind.items()},
        draws=any(draws for _, draws, _ in everywhere),
        unsaved=sorted({name for _, _, names in everywhere for name in names}),
    )


def check_loss(loss: Any, task: str, samples: int | None) -> None:
    """Refuse what a loss function returned, computed with gradients, with words instead of a wrong mean.

    Raises:
        PacelineError: not a Loss, not a scalar, without a gradient, or a count that is not `samples`, if not None.
    """
    problem = loss_problem(loss, samples) or gradient_problem(loss)
    if problem is not None:
        raise PacelineError(f"the loss of task {task} {problem.what}", why=problem.why, hint=problem.hint)


_OWN_ATTRIBUTES = frozenset(vars(nn.Module()))
"""Of every module; `training` is among them."""


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str, type(None))) or (isinstance(value, Tensor) and not value.requires_grad)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _same_value(value: Any, before: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(before, Tensor):
        return value.shape == before.shape and bool(torch.equal(value, before))
    return type(value) is type(before) and (value == before or value != value)


@contextmanager
def leaving_no_trace(objective: Objective) -> Iterator[Callable[[], list[str]]]:
    """At the end the model and random state are as they were before; parameters' values must not change meanwhile.

    Besides buffers, the model's state is what modules keep in plain attributes (a count of forwards, a running mean),
    and which parameters are frozen. Yields a function that names the plain attributes that have changed so far.
    """
    random = capture_random()
    buffers = [(buffer, buffer.detach().clone()) for buffer in objective.buffers()]
    frozen = [(parameter, parameter.requires_grad) for parameter in objective.model.parameters()]
    attributes = [
        (name, module, key, value, _copied(value))
        for name, module in objective.model.named_modules()
        for key, value in vars(module).items()
        if key not in _OWN_ATTRIBUTES and _is_plain(value)
    ]

    def changed() -> list[str]:
        return [
            f"{name}.{key}" if name else key
            for name, module, key, _, before in attributes
            if not _same_value(vars(module).get(key), before)
        ]

    try:
        yield changed
    finally:
        with torch.no_grad():
            for buffer, content in buffers:
                buffer.copy_(content)
            for parameter, required in frozen:
                parameter.requires_grad_(required)
            for _, module, key, value, before in attributes:
                if isinstance(value, Tensor):
                    value.copy_(before)
                vars(module)[key] = value if isinstance(value, Tensor) else before
        restore_random(random)
