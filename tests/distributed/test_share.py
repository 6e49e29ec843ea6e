"""Ranks of a machine hold the data once."""

from __future__ import annotations

import os

import psutil
import torch

from paceline.parallel import share
from paceline.parallel.placement import RankEnv
from paceline.pool.warm_ranks import run_ranks

SIZE = 64 * 1024 * 1024


def shared_on_rank() -> tuple[bool, int, bool]:
    """Equal values; private bytes of this process after the share; whether a write stays with its rank."""
    env = RankEnv.read(os.environ)
    assert env is not None
    generator = torch.Generator().manual_seed(3)
    original = torch.randint(0, 256, (SIZE,), generator=generator, dtype=torch.uint8)
    total, first = int(original.sum()), int(original[0])

    (mapped,) = share.share_on_machine([original], env)

    del original
    equal = int(mapped.sum()) == total
    private = psutil.Process().memory_full_info().uss
    torch.distributed.barrier()
    if env.rank == 0:
        mapped[0] = (first + 1) % 256
    torch.distributed.barrier()
    return equal, private, int(mapped[0]) == (first + (env.rank == 0)) % 256


def test_three_ranks_hold_one_copy_and_a_write_stays_private() -> None:
    """Values are equal, no rank has the 64 MiB to itself, and one rank's write is not seen by another."""
    # An allocator that gives back what is freed: that of trainings keeps it.
    usual = {"MALLOC_MMAP_MAX_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072"}
    baseline = run_ranks(private_bytes, 1, env=usual)[0]

    results = run_ranks(shared_on_rank, 3, env=usual)

    for equal, private, isolated in results:
        assert equal
        assert isolated
        assert private - baseline < SIZE // 2


def private_bytes() -> int:
    """What a rank has to itself without any data."""
    return int(psutil.Process().memory_full_info().uss)


def kept_on_rank() -> bool:
    """A rank that cannot reach the first one's memory keeps its own."""
    env = RankEnv.read(os.environ)
    assert env is not None
    own = torch.arange(10)
    share._publish = lambda tensors: []
    (kept,) = share.share_on_machine([own], env)
    return kept is own


def test_without_shared_memory_every_rank_keeps_its_own() -> None:
    """No error and no hang: the data are simply not shared."""
    assert run_ranks(kept_on_rank, 2) == [True, True]
