"""Checks of exercise L5.7: one rate, one decision."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from paceline.records.observed import Collective
from paceline_course.checking import Answer, Wrong, learners, load_module, proves

common = load_module(Path(__file__).with_name("common.py"), "paceline_course_L5_common")
material = load_module(Path(__file__).with_name("material.py"), "paceline_course_L5_material")


# --- L5.7 -----------------------------------------------------------------------------------------------------------


def rates(samples: Sequence[int], seconds: Sequence[float]) -> float:
    """Over there: the learner's throughput."""
    rank = dist.get_rank()
    return float(learners("throughput")(samples[rank], seconds[rank]))


@proves("L5.7", "the rate is the samples of all processes over the time of the slowest")
def throughput(answer: Answer) -> None:
    """Unequal shares, one slow process."""
    draw = answer.draw
    for world in (2, 3):
        samples, seconds, expected, mistakes = _telling_shares(draw, world)
        got = answer.ranks(rates, world, [int(each) for each in samples], [float(each) for each in seconds])
        if np.allclose(got, expected, rtol=1e-4):
            continue
        ran = f"{', '.join(map(str, samples))} samples in {', '.join(f'{value:.2f}' for value in seconds)} s"
        message = next((key for key, value in mistakes.items() if np.allclose(got, value, rtol=1e-4)), "throughput")
        if message == "throughput" and np.isclose(got[0], expected, rtol=1e-4):
            message = "only-rank-0"
        said = ", ".join(f"{value:.1f}" for value in got)
        raise Wrong(message, ran=ran, expected=f"{expected:.1f} on every process", got=f"{said} by rank")


def _telling_shares(draw: np.random.Generator, world: int) -> tuple[Any, Any, float, dict[str, Any]]:
    """Samples, seconds, the rate, and the rates by mistake, of which no two are nearly the same numbers."""
    while True:
        samples, seconds = draw.integers(100, 900, world), draw.uniform(0.5, 3.0, world)
        expected = sum(samples) / max(seconds)
        mistakes = {
            "sum-of-rates": np.full(world, sum(samples / seconds)),
            "summed-time": np.full(world, sum(samples) / sum(seconds)),
            "own-rate": samples / seconds,
            "own-times-world": world * samples / seconds,
            "own-time": sum(samples) / seconds,
            "own-samples": samples / max(seconds),
        }
        rules = [np.full(world, expected), *mistakes.values()]
        if not any(np.allclose(one, other, rtol=0.01) for one, other in itertools.combinations(rules, 2)):
            return samples, seconds, float(expected), mistakes


def decisions(mine: Sequence[Sequence[bool]]) -> tuple[list[bool], list[float]]:
    """Over there: the learner's common decision, several times, and when each was made."""
    decided, at = [], []
    for each in mine:
        decided.append(bool(learners("agree_to_stop")(each[dist.get_rank()])))
        at.append(time.monotonic())
    return decided, at


def _collectives(at: Sequence[float], calls: Sequence[Collective]) -> list[int]:
    """How many collectives were issued for each decision."""
    begins = [-np.inf, *at[:-1]]
    return [sum(begin < call.issued_s <= end for call in calls) for begin, end in zip(begins, at, strict=True)]


@proves("L5.7", "all processes stop as soon as one of them wants to, and only then")
def stopping(answer: Answer) -> None:
    """Every pattern of wishes for two and three processes."""
    for world in (2, 3):
        wishes = [[bool(number >> rank & 1) for rank in range(world)] for number in range(2**world)]
        traced = answer.traced(decisions, world, wishes, timeout_s=10)
        said = [[rank.result[0][number] for rank in traced] for number in range(len(wishes))]
        wrong = [number for number, each in enumerate(wishes) if said[number] != [any(each)] * world]
        counts = [_collectives(rank.result[1], rank.calls) for rank in traced]
        for number, each in enumerate(wishes):
            numbers = [count[number] for count in counts]
            if len(set(numbers)) > 1:
                got = ", ".join(map(str, numbers))
                raise Wrong("some-call", ran=f"wishes {each}", expected="as many collectives on all", got=got)
        if wrong:
            each = wishes[wrong[0]]
            expected = f"{any(each)} on all"
            message = _decided(wishes, said)
            raise Wrong(message, ran=f"wishes {each}", expected=expected, got=", ".join(map(str, said[wrong[0]])))


def _decided(wishes: Sequence[Sequence[bool]], said: Sequence[Sequence[bool]]) -> str:
    """Which rule they followed."""
    if all(list(each) == list(own) for each, own in zip(said, wishes, strict=True)):
        return "own-wish"
    if any(len(set(each)) > 1 for each in said):
        right_on_0 = all(each[0] == any(own) for each, own in zip(said, wishes, strict=True))
        return "only-rank-0" if right_on_0 else "disagree"
    agreed = [each[0] for each in said]
    if agreed == [own[0] for own in wishes]:
        return "rank-0-decides"
    return "all-must-wish" if agreed == [all(own) for own in wishes] else "decision"
