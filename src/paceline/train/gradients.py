"""What is read from gradients and done to them between a backward and the optimizer; any of them may be sparse."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from paceline.records.schema import GradientNorms
from paceline.train.recorder import Recorder


class NormWatch:
    """Records how long gradients are before and after the sum over ranks, every so many steps: what the noise scale
    is estimated from.

    Nothing of the training changes, to the bit. A micro-batch's gradient is seen by hooks on the parameters themselves,
    before it is added up and before DDP has it (a hook on DDP's communication would change bits at three ranks), and
    each rank writes its own norms down, so no message is needed either. Hooks are only there in recorded steps.

    On CUDA asking for the numbers would make the host wait, so they are read two steps later, as the ledger is.

    Args:
        parameters: that are trained.
        every: steps from one record to the next; 0 records nothing.
        recorder: of this rank.
        reported: the loss reports what it counts (tokens, weights), which is then recorded as well.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], every: int, recorder: Recorder, *, reported: bool = False
    ) -> None:
        self._parameters = parameters
        self._watched: list[nn.Parameter] = []
        self._every = every
        self._recorder = recorder
        self._reported = reported
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._parts: list[Tensor] = []
        self._samples: list[int] = []
        self._squares: list[Tensor] = []
        self._counts: list[Tensor] = []
        self._unread: tuple[int, int, list[int], Tensor] | None = None

    def begin(self, step: int) -> bool:
        """Before the first backward of `step` (1 for the first): whether it is recorded."""
        if self._unread is not None and step > self._unread[0] + 1:
            self.flush()
        if not self._every or (step - 1) % self._every:
            return False
        self.flush()
        self._parts, self._samples, self._squares, self._counts = [], [], [], []
        self._watched = [parameter for parameter in self._parameters if parameter.requires_grad]
        self._hooks = [parameter.register_hook(self._see) for parameter in self._watched]
        return True

    def micro_batch(self, samples: int, divisor: float | Tensor) -> None:
        """After the backward of one micro-batch.

        Args:
            samples: in it; with none it is no group.
            divisor: its gradient over this is the mean over its samples; where the loss reports counts, its count.
        """
        if samples and self._parts:
            # A Python float keeps float64 training in float64; a count may have the shape (1,).
            self._squares.append((torch.stack(self._parts).sum() / divisor**2).reshape(()))
            self._samples.append(samples)
            if self._reported:
                self._counts.append(torch.as_tensor(divisor, dtype=torch.float64).detach().reshape(()))
        self._parts = []

    def end(self, step: int, batch: int) -> None:
        """After the sum over ranks, when gradients are means over the batch and nothing has clipped them.

        Args:
            step: as in `begin`.
            batch: samples over all ranks.
        """
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        squares = [_square(parameter.grad) for parameter in self._watched if parameter.grad is not None]
        reduced = torch.stack(squares).sum() if squares else torch.zeros(())
        # In float64, for counts above 2^24.
        values = torch.stack(
            [each.to(reduced.device, torch.float64) for each in (*self._squares, *self._counts, reduced)]
        )
        self._unread = (step, batch, self._samples, values)
        if values.device.type == "cpu":
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        if self._unread is None:
            return
        (step, batch, samples, values), self._unread = self._unread, None
        *found, reduced = (value if math.isfinite(value) else None for value in values.tolist())
        squares, counts = found[: len(samples)], [count or 0.0 for count in found[len(samples) :]]
        for group, count in enumerate(counts):
            if not count:
                squares[group] = 0.0  # a mean over nothing: a group without weight
        self._recorder.write(
            GradientNorms(step=step, batch=batch, samples=samples, squares=squares, counts=counts, reduced=reduced)
        )

    def _see(self, gradient: Tensor) -> None:
        self._parts.append(_square(gradient))


def _square(gradient: Tensor) -> Tensor:
    """The squared norm, a scalar of 32 bits at least."""
    values = gradient.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    wide = torch.float32 if values.dtype.itemsize < 4 else values.dtype
    square: Tensor = torch.linalg.vector_norm(values, dtype=wide).square()
    return square


def scale_gradients(parameters: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply every gradient by `factor` (), in place."""
    if values := _numbers(parameters):
        torch._foreach_mul_(values, factor)


def clip_gradients(parameters: Sequence[Tensor], most: float) -> None:
    """As torch's clip_grad_norm_, to the bit, which takes no sparse gradients."""
    if values := _numbers(parameters):
        torch._foreach_mul_(values, torch.clamp(most / (get_total_norm(values) + 1e-6), max=1.0))


def _numbers(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The numbers of all gradients, to be written to: of a sparse one only those that it has, each row once."""
    values = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad._values())
        else:
            values.append(parameter.grad)
    return values
