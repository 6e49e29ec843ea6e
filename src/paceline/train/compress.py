"""Gradients that travel in 16 bits: half the bytes of float32, and no longer the exact sum. Only when asked for.

A hook of DDP's takes each bucket when its gradients are complete:

    divide     by the number of ranks, before the cast: float16 ends at 65,504
    cast       to 16 bits, and sum over ranks in them
    cast back  to the parameters' own numbers

What is lost: 16 bits round each part, and each sum of two. In a tensor of gradients that makes about 4e-4 of its norm
in float16 and 3e-3 in bfloat16 on two ranks (tests/distributed/test_compress.py has the limits), and more on many.
float16 also loses what is below 6e-8, and has nothing above 65,504.

**The ledger stays exact.** It shares a bucket with gradients (see `objective`) but is taken out of it and summed in a
message of its own, of 4 numbers, in its own dtype. So loss, count and stop are what they would be without compression.

**An overflow ends the run.** A gradient that is no longer finite could vanish in a ReLU and leave a finite, wrong loss.
So when any bucket comes back with an inf or a NaN, the objective takes the step's loss for NaN, on every rank alike,
and the loop stops as for any loss that is not finite: before the optimizer takes the step, on CUDA two steps later.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from paceline.records.errors import PacelineError
from paceline.settings.legal import one_of
from paceline.train.choices import COMPRESSIONS
from paceline.train.objective import Objective

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def register(ddp: DistributedDataParallel, kind: str, objective: Objective) -> None:
    """Let the gradients of `ddp` travel in other numbers; every rank calls this together, before the first step.

    Args:
        ddp: around `objective`.
        kind: a name of `COMPRESSIONS`; none registers nothing, and DDP's own sum stays.
        objective: whose ledger stays exact.

    Raises:
        PacelineError: an unknown kind, or the process group's backend cannot sum these numbers; on all ranks.
    """
    one_of("--compress", kind, COMPRESSIONS)
    if kind == "none":
        return
    _require_support(kind, objective.ledger.device)
    compression = Compression(kind, objective.ledger)
    objective.spoiled = compression.spoiled
    # A lambda, because DDP compares a hook's annotations with types, and ours are text.
    ddp.register_comm_hook(None, lambda _, bucket: compression.start(bucket))


def sync_bytes(model: nn.Module, kind: str) -> int:
    """Bytes of gradient that a rank hands to the sum over ranks in each step; the ledger (4 numbers) not counted.

    Args:
        model: whose trained parameters are summed.
        kind: a name of `COMPRESSIONS`.
    """
    trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
    return sum(parameter.numel() * _travelling(parameter.dtype, kind).itemsize for parameter in trained)


def _travelling(own: torch.dtype, kind: str) -> torch.dtype:
    """16-bit parameters have nothing to gain, and keep their own; there are no complex numbers of 16 bits."""
    return own if kind == "none" or own.itemsize <= 2 or own.is_complex else _DTYPES[kind]


def _require_support(kind: str, device: torch.device) -> None:
    """Older gloo cannot sum bfloat16; it says so at once and on all ranks."""
    try:
        dist.all_reduce(torch.zeros(1, dtype=_DTYPES[kind], device=device))
    except RuntimeError as error:
        raise PacelineError(
            f"--compress {kind} is not supported by the backend {dist.get_backend()} of this torch {torch.__version__}",
            why=str(error).splitlines()[0],
            hint="a newer torch, or --compress none",
        ) from error


class Compression:
    """The hook. DDP calls it with one bucket after another, in the same order on every rank.

    Args:
        kind: bf16 or fp16.
        ledger: is summed apart, in its own dtype.
    """

    def __init__(self, kind: str, ledger: nn.Parameter) -> None:
        self.kind = kind
        self.ledger = ledger
        self.world = dist.get_world_size()
        self._checks: list[Future[Tensor]] = []
        """Of each bucket of a step; it is back, and the value is 0, or NaN if not all of it is finite."""

    def spoiled(self) -> Tensor | float:
        """0, or NaN if what came back in the last synchronisation is not finite; the same on every rank."""
        return sum(check.wait() for check in self._checks)

    def start(self, bucket: Any) -> Future[Tensor]:
        """Start the sum of a bucket (a `dist.GradBucket`); the future's value is the bucket, with means in it."""
        if bucket.index() == 0:
            self._checks = []
        buffer: Tensor = bucket.buffer()
        if buffer.is_sparse:  # rows of an embedding, in a bucket of their own: few numbers, which stay exact
            return _summed(buffer / self.world).then(lambda done: done.value()[0])
        pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
        place = next((gradient for parameter, gradient in pairs if parameter is self.ledger), None)
        if place is None:
            self._checks.append(self._send([buffer]))
            return self._checks[-1].then(lambda _: buffer)
        total = place.clone()
        arrived = _summed(total)
        self._checks.append(self._send(_around(buffer, place)))

        def finish(_: Future[Tensor]) -> Tensor:
            arrived.wait()  # it was sent before; on CUDA this also orders the streams
            place.copy_(total / self.world)
            return buffer

        return self._checks[-1].then(finish)

    def _send(self, parts: list[Tensor]) -> Future[Tensor]:
        """Sum over ranks in 16 bits; `parts` hold means when the check is there."""
        sent = torch.cat([part.div_(self.world).to(_travelling(part.dtype, self.kind)) for part in parts])

        def unpack(_: Future[Any]) -> Tensor:
            for part, back in zip(parts, sent.split([len(part) for part in parts]), strict=True):
                part.copy_(back)
            # Nothing finite in 16 bits adds up to an inf in 32; inf and NaN stay what they are.
            return torch.stack([part.sum() for part in parts]).sum() * 0

        return _summed(sent).then(unpack)


def _around(buffer: Tensor, place: Tensor) -> list[Tensor]:
    """The bucket without the ledger, whose part of it is `place`: views."""
    start = place.storage_offset() - buffer.storage_offset()
    return [buffer[:start], buffer[start + place.numel() :]]


def _summed(tensor: Tensor) -> Future[Any]:
    """Its sum over ranks, in place, started."""
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    return work.get_future()
