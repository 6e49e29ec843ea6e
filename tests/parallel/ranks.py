"""What runs on ranks in these tests: each function is called on every rank of a gloo group."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.parallel import agree
from paceline.parallel.buffers import merge_buffers
from paceline.parallel.digest import digest
from paceline.parallel.partition import split
from paceline.parallel.reduce import all_objects, gather_objects, gather_rows, sum_over_ranks
from paceline.records.errors import PacelineError


def ranks_bit_equal(tensors: list[Tensor]) -> bool:
    """Whether every rank holds the same bits."""
    return len(set(all_objects(digest(tensors)))) == 1


def summed(values: list[list[float]]) -> list[float]:
    """The sum over ranks of one list a rank."""
    own = torch.tensor(values[dist.get_rank()], dtype=torch.float64)
    result = sum_over_ranks(own)
    assert result is own
    return result.tolist()


def gathered(totals: list[int], dtype: str) -> list[Tensor]:
    """For each total, all rows; row i holds i and -i."""
    results = []
    for total in totals:
        span = split(total, dist.get_world_size(), dist.get_rank())
        own = torch.arange(span.start, span.stop)[:, None] * torch.tensor([1, -1])
        results.append(gather_rows(own.to(getattr(torch, dtype)), total))
    return results


def objects() -> Any:
    """Every rank's number on rank 0."""
    return gather_objects({"rank": dist.get_rank()})


class Buffers(nn.Module):
    """Batch norms of two sizes, one without statistics, and buffers that are no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm1d(3), nn.BatchNorm2d(2), nn.BatchNorm1d(4, track_running_stats=False)])
        self.register_buffer("whole", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("truth", torch.zeros(1, dtype=torch.bool))
        self.register_buffer("grid", torch.zeros(1, 2, 3, 4))
        self.register_buffer("nothing", torch.zeros(0))


def fill(model: nn.Module, rank: int) -> None:
    """Values that only depend on the rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    for buffer in model.buffers():
        buffer.copy_(torch.rand(buffer.shape, generator=generator) * 10)


def merged(dtype: str) -> dict[str, Any]:
    """Buffers before and after they were merged, as numpy."""
    model = Buffers().to(getattr(torch, dtype)).to(memory_format=torch.channels_last)
    fill(model, dist.get_rank())
    before = {name: buffer.numpy().copy() for name, buffer in model.named_buffers()}
    merge_buffers(model)
    after = {name: buffer.numpy().copy() for name, buffer in model.named_buffers()}
    return {"before": before, "after": after, "equal": ranks_bit_equal(list(model.buffers()))}


def merged_masks() -> dict[str, Any]:
    """Buffers that are equal on all ranks, and two that are not, after they were merged."""
    model, rank = nn.Module(), dist.get_rank()
    model.norm = nn.BatchNorm1d(2)
    model.norm.running_mean += rank
    buffers = {
        "mask": torch.tensor([0.0, -math.inf, math.nan], dtype=torch.float32),
        "tenth": torch.tensor([0.1, 1e308, 5e-324], dtype=torch.float64),
        "index": torch.arange(4),
        "wave": torch.tensor([0.1 + 0.7j]),
        "highest": torch.tensor([1.0 + rank, math.inf]),
        "counter": torch.tensor(rank),
    }
    for name, value in buffers.items():
        model.register_buffer(name, value.clone())
    found = merge_buffers(model)
    same = {name for name, value in buffers.items() if digest([value]) == digest([getattr(model, name)])}
    return {
        "same": same - {"highest", "counter"},
        "averaged": found.averaged,
        "replaced": found.replaced,
        "highest": model.highest.tolist(),
    }


def merged_queue() -> str:
    """What is said of a buffer that grows."""
    model = nn.Module()
    model.register_buffer("queue", torch.zeros(1 + dist.get_rank()))
    try:
        merge_buffers(model)
    except PacelineError as error:
        return error.what
    return ""


def bit_equal() -> dict[str, bool]:
    """Equal tensors, and one that differs in the last bit, or in the sign of zero, on the last rank only."""
    last = dist.get_rank() == dist.get_world_size() - 1
    one = torch.ones(3, 4)
    nearly = torch.nextafter(one[0, 0], torch.tensor(2.0))
    changed = one.clone()
    if last:
        changed[2, 3] = nearly
    return {
        "same": ranks_bit_equal([one, one.t(), torch.tensor(2.5), torch.arange(3), torch.zeros(0)]),
        "last bit": ranks_bit_equal([one, changed]),
        "sign of zero": ranks_bit_equal([torch.tensor([-0.0 if last else 0.0])]),
        "nan": ranks_bit_equal([torch.tensor([float("nan")])]),
    }


def told(error: PacelineError) -> tuple[str, str, str, int]:
    """An error as plain data."""
    return error.what, error.why, error.hint, error.exit_code


def decided(fails: bool) -> Any:
    """`from_rank_zero` where rank 0 makes something or fails; other ranks must not be asked."""

    def make() -> dict[str, int]:
        assert dist.get_rank() == 0
        if fails:
            raise PacelineError("no disk", why="it is gone", hint="buy one", exit_code=4)
        return {"made by": dist.get_rank()}

    try:
        return agree.from_rank_zero(make)
    except PacelineError as error:
        dist.barrier()  # a rank that had gone on alone would not come here
        return told(error)


def built(failing: list[int]) -> Any:
    """`all_or_none` where some ranks fail."""
    rank = dist.get_rank()

    def make() -> int:
        if rank in failing:
            raise PacelineError(f"{rank} cannot", why="broken" if rank % 2 else "", exit_code=4)
        return rank * 10

    try:
        return agree.all_or_none(make)
    except PacelineError as error:
        dist.barrier()
        return told(error)


def required(values: list[str]) -> Any:
    """`require_equal` of one value a rank."""
    try:
        agree.require_equal("colour", values[dist.get_rank()])
    except PacelineError as error:
        return told(error)
    return "equal"
