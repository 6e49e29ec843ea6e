"""Checks of lab 3: collectives from send and receive, against torch's own, with what they send counted from outside."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from paceline_course.checking import Answer, Message, Traced, Wrong, learners, proves

WORLDS = (2, 3, 4, 5)
MESSAGES = {
    "not-everywhere": Message("some ranks do not have it", "who receives, and whether somebody sends to them"),
    "wrong-source": Message("it comes from another rank than src", "every use of rank 0 that should be src"),
    "not-by-hand": Message("it uses a collective of torch", "dist.send, dist.recv, dist.isend and dist.irecv only"),
    "too-many-sends": Message("a rank sends more often than a tree lets it", "ranks that have the data send as well"),
    "too-many-bytes": Message("a rank sends more than the bound", "chunks, not whole tensors; to the next rank only"),
    "wrong-sum": Message("the sum is another one", "what is added to what, and which chunk is sent on"),
    "wrong-chunk": Message(
        "it is the sum of another rank's chunk", "which chunk ends where; the index that is returned"
    ),
    "wrong-shape": Message("the chunk has another length", "tensor_split: the first chunks may be longer by one"),
    "ranks-differ": Message("ranks do not hold the same bits", "each chunk is added up once, and copied"),
}


def broadcasted(name: str, seed: int, length: int, src: int) -> np.ndarray:
    """Over there: a tensor of its own on each rank, then the learner's broadcast."""
    tensor = own(seed, dist.get_rank(), length, "float32")
    learners(name)(tensor, src)
    return tensor.numpy()


def own(seed: int, rank: int, length: int, kind: str) -> torch.Tensor:
    """What a rank has in the beginning."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if kind == "int64":
        return torch.randint(-1000, 1000, (length,), generator=generator)
    return torch.randn(length, generator=generator, dtype=getattr(torch, kind))


def judge_broadcast(answer: Answer, name: str, *, tree: bool) -> None:
    """2 to 5 ranks, another source each, a small and a large tensor."""
    draw = answer.draw
    for world in WORLDS:
        # One source at least is not rank 0.
        seed, src = int(draw.integers(1, 1000)), 2 if world == 3 else int(draw.integers(world))
        length = int(draw.choice([7, 300_001]))
        traced = answer.traced(broadcasted, world, name, seed, length, src, timeout_s=10)
        ran = f"{world} ranks, source {src}, {length:,} numbers"
        _refuse_collectives(traced, ran)
        tensors = [own(seed, rank, length, "float32").numpy() for rank in range(world)]
        wrong = [rank for rank, each in enumerate(traced) if not np.array_equal(each.result, tensors[src])]
        if wrong:
            stray = [
                (rank, other)
                for rank in range(world)
                for other in range(world)
                if other not in (src, rank) and np.array_equal(traced[rank].result, tensors[other])
            ]
            got = f"rank {wrong[0]} has something else"
            if stray:
                got = f"rank {stray[0][0]} has rank {stray[0][1]}'s"
            message = "wrong-source" if stray else "not-everywhere"
            raise Wrong(message, ran=ran, expected=f"rank {src}'s tensor everywhere", got=got)
        sends = [sum(call.op == "send" for call in each.calls) for each in traced]
        most = math.ceil(math.log2(world))
        if tree and max(sends) > most:
            got = f"rank {sends.index(max(sends))} sends {max(sends)} times"
            raise Wrong("too-many-sends", ran=ran, expected=f"at most {most} sends of a rank", got=got)


def _refuse_collectives(traced: list[Traced], ran: str) -> None:
    used = sorted({call.op for each in traced for call in each.calls} - {"send", "recv"})
    if used:
        raise Wrong("not-by-hand", ran=ran, expected="send and recv", got=", ".join(used))


@proves("L3.1", "every rank has what the source had, for 2 to 5 ranks")
def broadcast(answer: Answer) -> None:
    """Any source."""
    judge_broadcast(answer, "broadcast", tree=False)


@proves("L3.2", "every rank has what the source had, and none sends more than log2 of the ranks")
def tree(answer: Answer) -> None:
    """Any source."""
    judge_broadcast(answer, "tree_broadcast", tree=True)


def reduced(name: str, seed: int, length: int, kind: str) -> np.ndarray:
    """Over there: the learner's reduce-scatter or all-reduce."""
    tensor = own(seed, dist.get_rank(), length, kind)
    result = learners(name)(tensor)
    found: np.ndarray = (tensor if result is None else result).clone().numpy()
    return found


def _cases(answer: Answer) -> list[tuple[int, int, int, str]]:
    """(world, seed, length, kind): whole numbers and floats, odd lengths, one that does not fit into a buffer."""
    draw = answer.draw
    kinds = ["int64", "float32", "float64", "float32"]
    lengths = [int(draw.integers(11, 99)) * 5 + 1, 10_007, int(draw.integers(20, 40)), 1_500_001]
    return [
        (world, int(draw.integers(1, 1000)), length, kind)
        for world, length, kind in zip(WORLDS, lengths, kinds, strict=True)
    ]


def _sum(world: int, seed: int, length: int, kind: str) -> np.ndarray:
    parts = [own(seed, rank, length, kind).numpy() for rank in range(world)]
    wide = np.int64 if kind == "int64" else np.float64
    total: np.ndarray = np.sum(parts, axis=0, dtype=wide)
    return total


def _close(got: Any, expected: np.ndarray, kind: str) -> bool:
    return got.shape == expected.shape and bool(
        np.allclose(got, expected, rtol=1e-4 if kind == "float32" else 1e-9, atol=1e-5)
    )


def _sent(each: Traced) -> int:
    return sum(call.bytes for call in each.calls if call.op == "send")


@proves("L3.3", "each rank has the sum of its own chunk, and sends (W - 1) / W of a tensor")
def scatter(answer: Answer) -> None:
    """Against the sum of what the ranks had."""
    for world, seed, length, kind in _cases(answer):
        traced = answer.traced(reduced, world, "reduce_scatter", seed, length, kind, timeout_s=10)
        ran = f"{world} ranks, {length:,} numbers of type {kind}"
        _refuse_collectives(traced, ran)
        chunks = np.array_split(_sum(world, seed, length, kind), world)
        for rank, each in enumerate(traced):
            alike = [n for n in range(world) if each.result.shape == chunks[n].shape]
            matching = [n for n in alike if _close(each.result, chunks[n], kind)]
            if not matching and rank not in alike:
                raise Wrong("wrong-shape", ran=ran, expected=chunks[rank].shape, got=each.result.shape)
            if rank not in matching:
                got = (
                    f"rank {rank} has the sum of chunk {matching[0]}"
                    if matching
                    else f"rank {rank} has {each.result[:3]} ..."
                )
                expected = f"chunk {rank}: {chunks[rank][:3]} ..."
                raise Wrong("wrong-chunk" if matching else "wrong-sum", ran=ran, expected=expected, got=got)
        _judge_bytes(traced, ran, rounds=1, world=world, length=length, size=traced[0].result.itemsize)


@proves("L3.4", "it agrees with the sum on every rank, bit for bit the same, and sends 2 (W - 1) / W of a tensor")
def all_reduce(answer: Answer) -> None:
    """Against the sum of what the ranks had."""
    for world, seed, length, kind in _cases(answer):
        traced = answer.traced(reduced, world, "all_reduce", seed, length, kind, timeout_s=10)
        ran = f"{world} ranks, {length:,} numbers of type {kind}"
        _refuse_collectives(traced, ran)
        total = _sum(world, seed, length, kind)
        for rank, each in enumerate(traced):
            if not _close(each.result, total, kind):
                got = f"rank {rank} has {each.result[:3]} ... {each.result[-3:]}"
                raise Wrong("wrong-sum", ran=ran, expected=f"{total[:3]} ... {total[-3:]}", got=got)
        _judge_bytes(traced, ran, rounds=2, world=world, length=length, size=traced[0].result.itemsize)
        for rank, each in enumerate(traced[1:], start=1):
            if each.result.tobytes() != traced[0].result.tobytes():
                raise Wrong("ranks-differ", ran=ran, expected="the same bits", got=f"rank {rank} differs from rank 0")


def _judge_bytes(traced: list[Traced], ran: str, *, rounds: int, world: int, length: int, size: int) -> None:
    """The bound, with chunks that are longer by one number where the world does not divide the length."""
    bound = rounds * (world - 1) * math.ceil(length / world) * size
    for rank, each in enumerate(traced):
        if _sent(each) > bound:
            expected, got = f"at most {bound:,} bytes of a rank", f"rank {rank} sends {_sent(each):,}"
            raise Wrong("too-many-bytes", ran=ran, expected=expected, got=got)
