"""Second derivatives of a loss, or an error that says why it has none, be it a lack of memory.

Autograd is silent about some of them. A Python function marked `once_differentiable` is an error only if autograd has
to go through it to reach a weight, and the mark itself cuts that way off: what lies behind it counts as constant, and
the product lacks a part, or is zero. So such functions are looked for in the graph of the loss. A function that
neither carries the mark nor computes its backward from differentiable operations cannot be told from a right one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paceline.records.errors import Exit, PacelineError

_MARK = once_differentiable(lambda ctx: None).__code__
"""All functions that the decorator makes share their code."""


def product(total: Tensor, parameters: Sequence[Tensor], directions: list[Tensor], task: str) -> list[Tensor]:
    """The Hessian of `total` () times `directions`, one a parameter: the derivative of <gradient, directions>.

    Source: Pearlmutter 1994, Fast exact multiplication by the Hessian.

    Raises:
        PacelineError: it cannot be differentiated twice, or its gradient does not depend on the parameters at all.
    """
    try:
        gradients = torch.autograd.grad(total, parameters, create_graph=True, materialize_grads=True)
        curved = [(g, d) for g, d in zip(gradients, directions, strict=True) if g.requires_grad]
        if not curved:
            raise _not_twice(task, "its gradient does not depend on the weights")
        values, vectors = zip(*curved, strict=True)
        return list(torch.autograd.grad(values, parameters, vectors, materialize_grads=True))
    except (RuntimeError, NotImplementedError) as error:
        if _is_out_of_memory(error):
            raise
        raise _not_twice(task, _first_line(error)) from error


def refuse_once_differentiable(total: Tensor, task: str) -> None:
    """Look through the graph of a loss for functions without a second derivative that autograd would pass over.

    Raises:
        PacelineError: naming the function.
    """
    seen: set[Any] = set()
    waiting = [total.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        function = getattr(node, "_forward_cls", None)
        if function is not None and getattr(function.backward, "__code__", None) is _MARK:
            raise _not_twice(task, f"the backward of {function.__name__} is marked once_differentiable")
        waiting.extend(following for following, _ in node.next_functions)


def _not_twice(task: str, why: str) -> PacelineError:
    return PacelineError(
        f"the loss of task {task} cannot be differentiated twice",
        why=why,
        hint="curvature needs a loss whose gradient can be differentiated: leave out fused or custom operations that "
        "have no second derivative, and losses that are linear in the weights",
        exit_code=Exit.FAILED,
    )


@contextlib.contextmanager
def enough_memory_for(samples: int) -> Iterator[None]:
    """Compute on a chunk of so many samples.

    Raises:
        PacelineError: there is not enough memory for it.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        raise PacelineError(
            f"there is not enough memory for {samples:,} samples at once",
            why=_first_line(error),
            hint="fewer at once: paceline landscape --chunk; or free memory on this machine",
            exit_code=Exit.FAILED,
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    """torch has a class for it on CUDA devices; on a CPU it is a plain RuntimeError, as a missing derivative is."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
