"""Checks of a small lab."""

from __future__ import annotations

import torch.distributed as dist

from paceline_course.checking import Answer, Message, Wrong, learners, proves

MESSAGES = {
    "thrice": Message("it is three times x", "the factor"),
    "other": Message("it is something else", "the factor"),
    "own-value": Message("nothing was summed", "all_reduce"),
}


def call_twice(x: float) -> float:
    """Over there."""
    return learners("twice")(x)


@proves("L1.1", "it is twice x")
def twice(answer: Answer) -> None:
    """A random number."""
    x = float(answer.draw.normal())
    got = answer.call(call_twice, x, timeout_s=5)
    if got == 3 * x:
        raise Wrong("thrice", ran=f"x = {x}", expected=2 * x, got=got)
    if got != 2 * x:
        raise Wrong("other", ran=f"x = {x}", expected=2 * x, got=got)


def call_total(values: list[float]) -> float:
    """Over there."""
    return learners("total")(values[dist.get_rank()])


@proves("L1.2", "two ranks add up")
def total(answer: Answer) -> None:
    """Halves, so that the sum is exact."""
    values = [float(value) / 2 for value in answer.draw.integers(1, 9, 2)]
    got = answer.ranks(call_total, 2, values, timeout_s=5)
    if got != [sum(values)] * 2:
        raise Wrong("own-value", ran=f"{values} on 2 ranks", expected=sum(values), got=got)


@proves("L1.2", "and so do three", slow=True)
def total_of_three(answer: Answer) -> None:
    """As above."""
    if answer.ranks(call_total, 3, [1.0, 2.0, 4.0], timeout_s=5) != [7.0] * 3:
        raise Wrong("own-value", expected=7.0)
