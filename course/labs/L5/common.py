"""What several checks of lab 5 use."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from paceline.pool.warm_ranks import RankFailure
from paceline.tasks.task import Loss
from paceline_course.checking import Answer, Wrong, load_module

TOY = Path(__file__).with_name("toy.py")


@contextlib.contextmanager
def naming(answer: Answer, ran: str, expected: str, causes: dict[str, str]) -> Iterator[None]:
    """Give errors whose own words say little to a beginner a message: {words in the error: id}."""
    try:
        yield
    except RankFailure as failure:
        for words, message in causes.items():
            if words in failure.message:
                lines = re.findall(rf'/{re.escape(answer.path.name)}", line (\d+)', failure.traceback)
                where = f"{answer.path.name}:{lines[-1]}" if lines else ""
                raise Wrong(message, ran=ran, expected=expected, got=failure.message, where=where) from failure
        raise


def processes(world: int) -> str:
    """As a person says it."""
    return f"{world} process{'es' if world > 1 else ''}"


def judge_epochs(ranks: Sequence[Sequence[Sequence[Sequence[int]]]], samples: int, global_batch: int) -> None:
    """What holds for the ledgers of all ranks, epoch by epoch."""
    world = len(ranks)
    share = global_batch // world
    ran = f"{samples} samples, global batch {global_batch}, {processes(world)}"
    if any(len(rank) != len(ranks[0]) or not rank for rank in ranks):
        raise Wrong("missing-samples", ran=ran, expected="a pass over a loader in each epoch", got="none")
    orders = []
    for epoch in range(len(ranks[0])):
        seen = [[index for batch in rank[epoch] for index in batch] for rank in ranks]
        every = [index for each in seen for index in each]
        full = [len(batch) for rank in ranks for batch in rank[epoch][:-1]]
        last = [len(batch) for rank in ranks for batch in rank[epoch][-1:]]
        if world > 1 and all(len(set(each)) == samples for each in seen):
            got = f"{samples} samples in each of {world} processes"
            raise Wrong("everybody-sees-all", ran=ran, expected=f"{samples} in all", got=got)
        if set(every) != set(range(samples)):
            message = "overlap" if len(every) >= samples else "missing-samples"
            got = f"{len(set(every))} different ones among {len(every)}"
            raise Wrong(message, ran=ran, expected=f"{samples} different samples", got=got)
        if len(every) > samples + world - 1:
            raise Wrong("overlap", ran=ran, expected=f"{samples}, filled up by less than {world}", got=len(every))
        if off := [size for size in full if size != share] + [size for size in last if size > share]:
            message = "batch-size" if off[0] > share else "small-batch"
            raise Wrong(message, ran=ran, expected=f"{share} a process", got=off[0])
        orders.append(seen[0])
    if orders[0] == sorted(orders[0]):
        raise Wrong("not-shuffled", ran=ran, expected="a random order", got=f"{orders[0][:6]} ...")
    if again := next((each for number, each in enumerate(orders) if each in orders[:number]), None):
        raise Wrong("same-order", ran=ran, expected="another order in each epoch", got=f"{again[:5]} ... twice")


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    """Of a batch, as a sum, for the oracle."""
    return Loss(nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum"), len(batch[1]))


def toy() -> Any:
    """The single-device script, as a module."""
    return load_module(TOY, "paceline_course_L5_toy")
