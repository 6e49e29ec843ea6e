"""A.coverage: which sample was read by which process, in which epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline_course.assess.box import Ran, RankSeen
from paceline_course.assess.correctness.drawing import Trial
from paceline_course.assess.correctness.runs import Trials
from paceline_course.assess.kit import signals
from paceline_course.assess.submission_process import EVALUATE, TRAIN
from paceline_course.checking import Wrong

Numbers = NDArray[np.int64]
_NEARLY = 0.4
"""Of `_nearly`: another order comes to -1, give or take 0.2; an epoch cut into parts to -0.3."""
_LEAST_PART = 0.5
"""Of an even share that each process has to take of an epoch."""


def judge_coverage(trials: Trials) -> dict[str, Any]:
    """Three processes, three epochs."""
    trial = trials.drawn.first
    ran = trials.run(trial)
    epochs = epochs_of(ran, trial)
    shares = judge_epochs(ran, trial, epochs)
    return {"samples": trial.setting.samples, "read by rank, each epoch": shares}


def judge_epochs(ran: Ran, trial: Trial, epochs: list[list[Numbers]]) -> list[list[int]]:
    """How many samples each rank read in each epoch.

    Raises:
        Wrong: not every sample once, not by one process, or not in the order of the task.
    """
    setting = trial.setting
    shares = []
    for epoch, parts in enumerate(epochs):
        # The last place is for numbers that no sample has; a program may have tried any.
        counts = np.bincount(np.concatenate(parts).clip(0, setting.samples), minlength=setting.samples + 1)
        _judge_counts(ran, setting.samples, parts, counts, epoch)
        shares.append([len(part) for part in parts])
    expected = [np.asarray(signals().order(setting.samples, setting.seed, epoch)) for epoch in range(len(epochs))]
    _judge_order(ran, setting.batch, epochs, expected)
    least = min(min(share) for share in shares)
    if trial.world > 1 and least < _LEAST_PART * setting.samples / trial.world:
        raise Wrong(
            "unequal-parts",
            ran=ran.command,
            expected=f"some {setting.samples // trial.world} samples an epoch on each process",
            got=f"{shares[0]} in epoch 0",
        )
    return shares


def epochs_of(ran: Ran, trial: Trial) -> list[list[Numbers]]:
    """By epoch and rank: the samples read.

    Raises:
        Wrong: they were read at another time than they were needed, or never.
    """
    count = trial.setting.epochs
    by_rank = [_epochs(seen, count) for seen in ran.ranks]
    if any(parts is None for parts in by_rank):
        rank = next(number for number, parts in enumerate(by_rank) if parts is None)
        got = len(ran.ranks[rank].numbers(TRAIN))
        if got == trial.setting.samples:
            raise Wrong(
                "not-read",
                ran=ran.command,
                expected=f"readings in each of {count} epochs",
                got=f"rank {rank} read {got} samples, once for all epochs",
            )
        raise Wrong(
            "not-read",
            ran=ran.command,
            expected=f"equally many readings in {count} epochs",
            got=f"{got} on rank {rank}",
        )
    return [[parts[epoch] for parts in by_rank if parts is not None] for epoch in range(count)]


def _epochs(seen: RankSeen, count: int) -> list[Numbers] | None:
    """A rank's readings, cut into epochs: by the evaluations between them, else into equal parts."""
    blocks = [block.numbers for block in seen.blocks if block.role == TRAIN]
    if len(blocks) == count and any(block.role == EVALUATE for block in seen.blocks):
        return blocks
    numbers = seen.numbers(TRAIN)
    if len(numbers) % count:
        return None
    if len(numbers) == 0:
        return [numbers] * count
    return list(np.split(numbers, count))


def _judge_counts(ran: Ran, samples: int, parts: list[Numbers], counts: Numbers, epoch: int) -> None:
    expected = f"each of {samples} samples once in epoch {epoch}, all processes together"
    outside = int(counts[samples])
    twice, never = int((counts[:samples] > 1).sum()) + outside, int((counts[:samples] == 0).sum())
    if not twice and not never:
        return
    total = sum(len(part) for part in parts)
    got = f"{total} readings: {twice} samples more than once, {never} never"
    if total == 0:
        others = sum(len(block.numbers) for seen in ran.ranks for block in seen.blocks if block.role != TRAIN)
        got = f"no sample was read, but {others} of other data" if others else "no sample was read"
        raise Wrong("not-read", ran=ran.command, expected=expected, got=got)
    if len(parts) > 1 and all(len(np.unique(part)) >= samples * 0.98 for part in parts):
        raise Wrong("everybody-sees-all", ran=ran.command, expected=expected, got=got)
    if twice and not any(block.role == EVALUATE for seen in ran.ranks for block in seen.blocks):
        raise Wrong("evaluates-on-training", ran=ran.command, expected=expected, got=got)
    if twice and never:
        raise Wrong("overlap", ran=ran.command, expected=expected, got=got)
    if twice:
        raise Wrong("padded", ran=ran.command, expected=expected, got=got)
    raise Wrong("dropped", ran=ran.command, expected=expected, got=got)


def _in_steps(parts: list[Numbers], samples: int, batch: int) -> list[set[int]]:
    """The samples of each step, all processes together, as far as the parts' lengths tell: k-th pieces side by side."""
    steps = -(-samples // batch)
    found: list[set[int]] = [set() for _ in range(steps)]
    for part in parts:
        # Each process reads its part of every batch; of all but the last one these are equally long, or differ by one.
        sizes = np.full(steps, batch * len(part) / samples)
        edges = np.rint(np.concatenate([[0], np.cumsum(sizes)])).astype(int)
        for step in range(steps):
            found[step] |= set(part[edges[step] : edges[step + 1]].tolist())
    return found


def _nearly(parts: list[Numbers], order: Numbers) -> float:
    """How well the places in the order are told by when a process read: 1 is exactly, 0 and below is not at all."""
    places = np.empty(len(order))
    places[order] = np.arange(len(order))
    off = [places[part] - (np.arange(len(part)) + 0.5) * len(order) / max(1, len(part)) for part in parts]
    return 1.0 - float(np.mean(np.concatenate(off) ** 2)) / float(np.var(places))


def _judge_order(ran: Ran, batch: int, epochs: list[list[Numbers]], expected: list[Numbers]) -> None:
    """The sets of the first steps agree with the task's for the most part; whether exactly, the weights tell."""
    orders = [_in_steps(parts, len(expected[0]), batch) for parts in epochs]

    def share(steps: list[set[int]], order: Numbers, size: int = batch) -> float:
        pieces = [set(order[at : at + size].tolist()) for at in range(0, len(order), size)]
        return sum(len(step & piece) for step, piece in zip(steps, pieces, strict=False)) / len(order)

    if all(share(steps, order) > 0.6 for steps, order in zip(orders, expected, strict=True)):
        return
    plain = np.arange(len(expected[0]))
    if share(orders[0], plain) > 0.6:
        raise Wrong(
            "not-shuffled",
            ran=ran.command,
            expected=f"epoch 0 begins with the samples {expected[0][:6].tolist()} ...",
            got="the order of the data",
        )
    if len(orders) > 1 and share(orders[1], expected[0]) > 0.6:
        raise Wrong(
            "same-order", ran=ran.command, expected="another order in each epoch", got="that of epoch 0 in epoch 1"
        )
    world = len(ran.ranks)
    if world > 1 and all(
        share(_in_steps(parts, len(plain), batch * world), order, batch * world) > 0.9
        for parts, order in zip(epochs, expected, strict=True)
    ):
        got = f"steps of {batch * world}, {batch} samples for each process"
        raise Wrong("batch-per-process", ran=ran.command, expected=f"steps of {batch} samples, shared", got=got)
    if all(_nearly(parts, order) > _NEARLY for parts, order in zip(epochs, expected, strict=True)):
        return  # loader workers read ahead, each at its own pace
    raise Wrong(
        "other-order",
        ran=ran.command,
        expected=f"step 0 has the samples {sorted(expected[0][:batch].tolist())[:6]} ...",
        got=f"{sorted(orders[0][0])[:6]} ...",
    )
