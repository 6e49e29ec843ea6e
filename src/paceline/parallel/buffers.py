"""Buffers of a model over ranks: statistics become their mean, everything else is rank 0's.

A layer keeps running statistics of what passed through it, so they differ between ranks until they are merged. No name
says which buffers are statistics. What is the same on all ranks (masks, tables, constants) stays as it is to the bit;
of real and complex numbers that differ the mean is taken, which for running means over equal parts of each batch is
what one process has. Whole numbers and truth values that differ become rank 0's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.parallel.digest import digest
from paceline.parallel.reduce import all_objects, all_tensors
from paceline.records.errors import Exit, PacelineError


@dataclass(frozen=True)
class Differing:
    """Names of buffers that were not the same on all ranks.

    Attributes:
        averaged: of real or complex numbers, but for those of torch's batch and instance norms.
        replaced: that became rank 0's, but for the same.
    """

    averaged: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@torch.no_grad()
def merge_buffers(model: nn.Module) -> Differing:
    """Make all ranks' buffers equal; every rank calls this together.

    Raises:
        PacelineError: a buffer has not the same shape on all ranks.
    """
    named = dict(model.named_buffers())
    differing = _differing(named)
    statistics = [name for name in differing if is_statistic(named[name])]
    others = [name for name in differing if not is_statistic(named[name])]
    for dtype in sorted({named[name].dtype for name in statistics}, key=str):
        alike = [named[name] for name in statistics if named[name].dtype == dtype]
        flat = torch.cat([buffer.flatten() for buffer in alike])
        merged = mean_over_ranks(_of_all_ranks(flat))
        for buffer, part in zip(alike, merged.split([buffer.numel() for buffer in alike]), strict=True):
            buffer.copy_(part.view_as(buffer))
    for name in others:
        whole = named[name].contiguous()
        dist.broadcast(whole, src=0)
        named[name].copy_(whole)
    known = _of_torchs_norms(model)
    return Differing(
        tuple(name for name in statistics if id(named[name]) not in known),
        tuple(name for name in others if id(named[name]) not in known),
    )


def is_statistic(buffer: Tensor) -> bool:
    """Whether a mean of it over ranks can be taken."""
    return buffer.is_floating_point() or buffer.is_complex()


def mean_over_ranks(values: Sequence[Tensor]) -> Tensor:
    """The elementwise mean of one tensor a rank; where all are equal exactly that, an inf or NaN also."""
    first = values[0]
    rows = torch.stack([value.to(torch.complex128 if value.is_complex() else torch.float64) for value in values])
    same = ((rows == rows[0]) | (rows.isnan() & rows[0].isnan())).all(dim=0)
    return torch.where(same, first, rows.mean(dim=0).to(first.dtype))


@torch.no_grad()
def copy_counters(model: nn.Module) -> None:
    """Give every rank rank 0's buffers of whole numbers.

    A layer counts its forwards, and a rank without samples had none: it would count fewer steps than the others.
    """
    for buffer in model.buffers():
        if not is_statistic(buffer):
            dist.broadcast(buffer, src=0)


def _differing(named: dict[str, Tensor]) -> list[str]:
    own = [(tuple(buffer.shape), digest([buffer])) for buffer in named.values()]
    if not own:
        return []
    everywhere = dict(zip(named, zip(*all_objects(own), strict=True), strict=True))
    for name, states in everywhere.items():
        if len(shapes := {shape for shape, _ in states}) > 1:
            raise PacelineError(
                f"the buffer {name} has another shape on each worker",
                why=" and ".join(str(shape) for shape in sorted(shapes)),
                hint="let it have one shape from the start",
                exit_code=Exit.FAILED,
            )
    return [name for name, states in everywhere.items() if len(set(states)) > 1]


def _of_all_ranks(flat: Tensor) -> list[Tensor]:
    if flat.is_complex():
        return [torch.view_as_complex(part) for part in all_tensors(torch.view_as_real(flat).contiguous())]
    return all_tensors(flat.contiguous())


def _of_torchs_norms(model: nn.Module) -> set[int]:
    norms = (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase))
    return {id(buffer) for norm in norms for buffer in norm.buffers(recurse=False)}
