"""What must be known before a prediction of `paceline plan speed` is believed: warnings, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.plan.jitter import LEAST_FOR_TAIL
from paceline.plan.step_time import Setting, StepTime
from paceline.records.plan_results import NetworkFacts, SpeedRow

FULL = 8.0
"""Samples of a worker over the most that were measured: memory may end before."""


def warnings(
    model: StepTime, rows: Sequence[SpeedRow], seen: Sequence[Setting], asked: Sequence[int], far: float
) -> list[str]:
    """In the order of importance.

    Args:
        model: the fit.
        rows: that answer.
        seen: settings that were measured.
        asked: workers that were asked for.
        far: workers over the most that were measured, up to which the formula is trusted.
    """
    return [
        *_too_far(model, asked, far),
        *_left_out(rows, asked),
        *_one_number(seen),
        *_taking_turns(model, seen, asked),
        *_jitter(model, asked),
        *_memory(rows, seen),
    ]


def _too_far(model: StepTime, asked: Sequence[int], far: float) -> list[str]:
    beyond = [workers for workers in asked if workers > far * model.most_workers]
    if not beyond:
        return []
    most = f"{far:g} times the {model.most_workers:,} that were measured"
    return [f"{_listed(beyond)} workers are over {most}: take it as the formula's word"]


def _left_out(rows: Sequence[SpeedRow], asked: Sequence[int]) -> list[str]:
    shared = {row.workers for row in rows if row.scaling == "strong"}
    left = [workers for workers in asked if workers not in shared]
    if not left:
        return []
    return [
        f"strong scaling has no row for {_listed(left)} workers: the batch (--batch) would not give each of them a "
        "sample"
    ]


def _one_number(seen: Sequence[Setting]) -> list[str]:
    if len({setting.workers for setting in seen}) > 1:
        return []
    return ["all runs have the same number of workers: how far backward hides the sum is assumed"]


def _taking_turns(model: StepTime, seen: Sequence[Setting], asked: Sequence[int]) -> list[str]:
    """Of workers that share cores."""
    if model.processors is None:
        return []
    room, per_node = model.processors, model.network.per_node
    crowded = [workers for workers in asked if Setting(workers, 1, 1, per_node).crowd > room]
    if not crowded:
        return []
    if per_node is None:
        found = (
            f"{_listed(crowded)} workers take turns on one machine, whose cores compute {room:g} at once; --per-node, "
            "--outer-bandwidth and --outer-latency spread them over machines"
        )
    else:
        found = f"{per_node} workers take turns on a machine, whose cores compute {room:g} at once"
    if max(setting.crowd for setting in seen) <= room:
        found += "; no run had as many, so how much of a step that slows down is assumed"
    return [found]


def _jitter(model: StepTime, asked: Sequence[int]) -> list[str]:
    jitter = model.jitter
    more = [workers for workers in asked if workers > jitter.seen]
    if not jitter.measured or not more:
        return []
    found = f"{jitter.facts.steps:,} steps of one worker show how long the slowest of up to {jitter.seen:,} takes"
    if jitter.facts.tail:
        return [f"{found}; for {_listed(more)} workers it is the word of a fitted tail (generalised Pareto)"]
    return [
        f"{found}; {_listed(more)} workers wait longer than is said: a tail takes {LEAST_FOR_TAIL} steps of one worker"
    ]


def _memory(rows: Sequence[SpeedRow], seen: Sequence[Setting]) -> list[str]:
    largest = max(setting.micro for setting in seen)
    above = sorted({row.workers for row in rows if row.batch / row.workers > FULL * largest})
    if not above:
        return []
    workers = f"{above[0]:,} worker{'s' if above[0] != 1 else ''}"
    return [
        f"with {workers} each would hold over {FULL:g} times the {largest:,.0f} samples of any run: whether they fit "
        "into memory is not known"
    ]


def _listed(workers: Sequence[int]) -> str:
    return ", ".join(f"{count:,}" for count in workers)


def notes(facts: NetworkFacts, model: StepTime) -> list[str]:
    """Assumptions."""
    found = [
        "strong: the global batch stays; weak: the batch a worker stays; neither says how many steps a target takes"
    ]
    if facts.source == "probe":
        found.append("the network is that of this machine's workers among themselves, as a probe found it")
        if model.network.outer is not None:
            found.append("what lies between machines is as it was given, not measured")
    if facts.source == "given":
        found.append("the network is as it was given, not measured")
    if not model.jitter.measured:
        found.append("jitter is not in it: no run with one worker has shown how much its steps vary")
    return found
