"""What must be known before a prediction of `paceline plan speed` is believed: warnings, and what limits it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from paceline.plan.jitter import LEAST_FOR_TAIL
from paceline.plan.step_time import FAR, Setting, StepTime
from paceline.records.plan_results import SpeedRow

FULL = 8.0
"""Samples of a worker over the most that were measured: memory may end before."""


def listed(numbers: Iterable[int]) -> str:
    """`32, 1,024`."""
    return ", ".join(f"{number:,}" for number in numbers)


def warnings(model: StepTime, rows: Sequence[SpeedRow], seen: Sequence[Setting], asked: Sequence[int]) -> Iterator[str]:
    """In the order of importance.

    Args:
        model: the fit.
        rows: that answer.
        seen: settings that were measured.
        asked: workers that were asked for.
    """
    if far := model.farther(asked):
        most = f"{FAR:g} times the {model.most_workers:,} that were measured"
        yield f"{listed(far)} workers are over {most}: take it as the formula's word"
    shared = {row.workers for row in rows if row.scaling == "strong"}
    if left := [workers for workers in asked if workers not in shared]:
        yield (
            f"strong scaling has no row for {listed(left)} workers: the batch (--batch) would not give each of them a "
            "sample"
        )
    if len({setting.workers for setting in seen}) == 1:
        yield "all runs have the same number of workers: how far backward hides the sum is assumed"
    yield from _taking_turns(model, seen, asked)
    yield from _jitter(model, asked)
    largest = max(setting.micro for setting in seen)
    if above := {row.workers for row in rows if row.batch / row.workers > FULL * largest}:
        workers = f"{min(above):,} worker{'s' if min(above) != 1 else ''}"
        yield (
            f"with {workers} each would hold over {FULL:g} times the {largest:,.0f} samples of any run: whether they "
            "fit into memory is not known"
        )


def _taking_turns(model: StepTime, seen: Sequence[Setting], asked: Sequence[int]) -> Iterator[str]:
    """Of workers that share cores."""
    if model.processors is None:
        return
    room, per_node = model.processors, model.network.per_node
    crowded = [workers for workers in asked if Setting(workers, 1, 1, per_node).crowd > room]
    if not crowded:
        return
    if per_node is None:
        found = (
            f"{listed(crowded)} workers take turns on one machine, whose cores compute {room:g} at once; --per-node, "
            "--outer-bandwidth and --outer-latency spread them over machines"
        )
    else:
        found = f"{per_node} workers take turns on a machine, whose cores compute {room:g} at once"
    if max(setting.crowd for setting in seen) <= room:
        found += "; no run had as many, so how much of a step that slows down is assumed"
    yield found


def _jitter(model: StepTime, asked: Sequence[int]) -> Iterator[str]:
    jitter = model.jitter.facts
    more = [workers for workers in asked if workers > jitter.seen]
    if not jitter.waits or not more:
        return
    found = f"{jitter.steps:,} steps of one worker show how long the slowest of up to {jitter.seen:,} takes"
    if jitter.tail:
        yield f"{found}; for {listed(more)} workers it is the word of a fitted tail (generalised Pareto)"
    else:
        yield (
            f"{found}; {listed(more)} workers wait longer than is said: a tail takes {LEAST_FOR_TAIL} steps of one "
            "worker"
        )


def notes(model: StepTime, *, probed: bool) -> Iterator[str]:
    """Assumptions; `probed` says that a probe found the network."""
    yield "strong: the global batch stays; weak: the batch a worker stays; neither says how many steps a target takes"
    if not probed:
        yield "the network is as it was given, not measured"
    else:
        yield "the network is that of this machine's workers among themselves, as a probe found it"
        if model.network.outer is not None:
            yield "what lies between machines is as it was given, not measured"
    if not model.jitter.facts.waits:
        yield "jitter is not in it: no run with one worker has shown how much its steps vary"
