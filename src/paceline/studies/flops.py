"""How much computing the forward pass of a task's model is, counted on a real batch.

A multiply-add is 2 FLOP. Matrix products, convolutions and attention are counted, as torch's own counter knows them;
norms, activations, pooling and whatever else goes through the numbers one by one are left out: of most networks that
is a few per cent of the arithmetic, though not of the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paceline.curvature.chunks import Chunks
from paceline.curvature.side_effects import untouched
from paceline.tasks.data.arrays import Like
from paceline.tasks.holdout import hold_out
from paceline.tasks.table import TaskOptions
from paceline.tasks.task import Loss, Task
from paceline.tasks.task_loader import load_task

SAMPLES = 8
"""In the batch that is counted. Where samples differ in length, it is their mean."""
_CPU = torch.device("cpu")


def answer(request: bytes, stage: Callable[[str], None]) -> bytes:
    """`forward_flop` for a process of its own: task, its data and holdout come, and the number goes, as JSON."""
    del stage
    name, data_dir, holdout = msgspec.json.decode(request, type=tuple[str, str | None, int])
    task = hold_out(load_task(name, TaskOptions(data_dir=data_dir)), holdout)
    return msgspec.json.encode(forward_flop(task))


def forward_flop(task: Task) -> float | None:
    """FLOP of the forward pass of one sample, as in an evaluation; None where torch's counter cannot follow the model.

    Args:
        task: its model is built anew, on the CPU; the random state stays as it was.

    Raises:
        PacelineError: the task has no evaluation samples.
    """
    with untouched(nn.Module(), _CPU):  # building draws random numbers
        try:
            model = task.model()
            samples = min(SAMPLES, task.eval_batch, len(task.eval_data))
            batch = Chunks(task.eval_data, Like(_CPU, torch.float32, False), samples, samples).batch(0)
            return count_forward(model, task.loss, batch) / samples
        except (RuntimeError, TypeError, ValueError, KeyError, NotImplementedError, AssertionError):
            return None


def count_forward(model: nn.Module, loss: Callable[[nn.Module, Any], Loss], batch: Any) -> int:
    """FLOP of one forward pass; the model's mode, gradients, buffers and the random state stay as they were.

    Args:
        model: on the CPU, in 32 bits.
        loss: of a task.
        batch: what it takes.
    """
    with untouched(model, _CPU), torch.no_grad(), _plain_kernels(), FlopCounterMode(display=False) as counter:
        loss(model, batch)
    return int(counter.get_total_flops())


@contextlib.contextmanager
def _plain_kernels() -> Iterator[None]:
    """Attention and recurrent layers as the products they consist of: the counter does not know their fused forms."""
    before = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before[0])
        torch.backends.mkldnn.enabled = before[1]
