"""Sums in order over real gloo ranks, against the same additions in one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from paceline.parallel.ordered import add_in_order, ordered_sum
from paceline.parallel.partition import split
from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError

PIECES = 11
DTYPES = ["float32", "float64", "bfloat16", "int64"]


def piece(index: int, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers of very different sizes, so that every order of adding has other bits."""
    generator = torch.Generator().manual_seed(index)
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * 10.0 ** (index % 5)
    return values.to(getattr(torch, dtype))


def one_after_the_other(dtype: str, shape: tuple[int, ...], order: list[int]) -> torch.Tensor:
    """numpy's additions where it has the dtype, in `order`."""
    total = piece(order[0], dtype, shape)
    for index in order[1:]:
        if dtype == "bfloat16":
            total = total + piece(index, dtype, shape)
        else:
            total = torch.from_numpy(np.asarray(total.numpy() + piece(index, dtype, shape).numpy()))
    return total


def summed(dtype: str, shape: tuple[int, ...], counts: list[int] | None) -> bytes:
    """The sum on this rank; pieces are split evenly, or by `counts`."""
    world, rank = dist.get_world_size(), dist.get_rank()
    if counts is None:
        own = split(PIECES, world, rank)
        start, stop = own.start, own.stop
    else:
        start, stop = sum(counts[:rank]), sum(counts[: rank + 1])
    total = ordered_sum(piece(index, dtype, shape) for index in range(start, stop))
    assert total.shape == shape
    assert total.dtype == getattr(torch, dtype)
    return total.reshape(-1).view(torch.uint8).numpy().tobytes()


def bits(tensor: torch.Tensor) -> bytes:
    """Of all numbers."""
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_the_bits_are_those_of_adding_one_after_the_other_on_any_number_of_ranks(world: int, dtype: str) -> None:
    """On every rank; another order would have other bits."""
    shape = (37, 3)
    wanted = one_after_the_other(dtype, shape, list(range(PIECES)))

    assert run_ranks(summed, world, dtype, shape, None) == [bits(wanted)] * world
    if dtype != "int64":
        assert bits(one_after_the_other(dtype, shape, [*range(1, PIECES), 0])) != bits(wanted)


@pytest.mark.parametrize("counts", [[0, 5, 6], [5, 0, 6], [11, 0, 0], [0, 0, 11], [1, 10, 0]])
def test_ranks_without_pieces_pass_the_sum_on(counts: list[int]) -> None:
    """Wherever they stand, and of a tensor without dimensions, too."""
    wanted = one_after_the_other("float32", (), list(range(PIECES)))

    assert run_ranks(summed, 3, "float32", (), counts) == [bits(wanted)] * 3


def test_without_a_process_group_there_is_one_rank() -> None:
    """The same bits, and pieces are left as they are."""
    pieces = [piece(index, "float32", (5,)) for index in range(PIECES)]
    before = [each.clone() for each in pieces]

    total = ordered_sum(pieces)

    assert torch.equal(total, one_after_the_other("float32", (5,), list(range(PIECES))))
    assert all(torch.equal(a, b) for a, b in zip(pieces, before, strict=True))


def test_nothing_to_add_is_an_error_on_one_rank_and_on_many() -> None:
    """Of no shape can zeros be made."""
    with pytest.raises(ValueError, match="nothing to sum"):
        ordered_sum([])
    assert add_in_order([]) is None
    assert run_ranks(empty, 2, timeout_s=30) == ["there is nothing to sum"] * 2


def empty() -> str:
    """What a sum of nothing says."""
    try:
        ordered_sum([])
    except ValueError as error:
        return str(error)
    return "a sum"


def failing(culprit: int, how: str) -> list[str]:
    """One rank cannot make its second piece, or makes one of another shape; then all sum once more."""
    rank = dist.get_rank()

    def pieces() -> Iterator[torch.Tensor]:
        yield torch.ones(3)
        if rank == culprit:
            if how == "raises":
                raise KeyError("no such sample")
            if how == "says why":
                raise PacelineError("no", why="because", exit_code=3)
            yield torch.ones(4)

    said = ""
    try:
        ordered_sum(pieces())
    except (KeyError, ValueError, PacelineError) as error:
        said = f"{type(error).__name__}: {getattr(error, 'why', error)}"
    return [said, str(ordered_sum([torch.ones(1)]).item())]


@pytest.mark.parametrize("how", ["raises", "shape", "says why"])
@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_when_one_rank_fails_nobody_waits(culprit: int, how: str) -> None:
    """It raises what it met, the others say the same or quote it, and the next sum is right."""
    results: list[Any] = run_ranks(failing, 3, culprit, how, timeout_s=30)

    own = {
        "raises": "KeyError: 'no such sample'",
        "shape": "ValueError: pieces differ",
        "says why": "PacelineError: because",
    }[how]
    quoted = f"PacelineError: rank {culprit} failed while it computed its part: {own}"
    for rank, (said, again) in enumerate(results):
        assert said.startswith(own if rank == culprit or how == "says why" else quoted)
        assert again == "3.0"
