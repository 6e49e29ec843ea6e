"""Ranks of one process group do not call the same collectives in the same order.

What it finds:
    The n-th collective that a script calls on a process group, compared over its ranks: another operation, root, data
    type or size; another number of collectives before it, those of DDP included; another number of calls at the end of
    the script. A warning where the calls are equal and their lines are out of step.

Why it matters:
    A collective pairs with whatever the other ranks call at that time. Small ones complete all the same: one rank then
    takes a sum of gradients for its metric, or counts for losses. Others hang or crash, often at another line.

Repair:
    Let all ranks take the same branch: reduce the condition first. Gather tensors of different sizes padded to the
    largest one, after an all_gather of the sizes.

Known problems:
    Collectives that DDP and libraries issue in C++ are counted, not compared one by one; sends and receives end the
    counting. Calls are compared that all ranks of the group recorded: all of the first 50, later fewer and fewer.

References:
    F75, F78, F80, F82, F87, F91, F130. https://github.com/pytorch/pytorch/issues/44353
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from paceline.audits.across_ranks import AcrossRanks, differing
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.records.event import Event, Severity, attempt_of
from paceline.records.observed import Collective, CollectivesCounted
from paceline.records.observed_rank import GroupMade
from paceline.records.schema import Finding
from paceline.records.wrap import ordinal

T = TypeVar("T")
_Group = tuple[int, str, int]
"""Attempt, name and size."""
_Calls = Mapping[int, Collective]
_ADVICE = {
    "operation": "let all ranks call the same collectives in the same order: look for a branch on the rank, and for a "
    "break or continue that only some ranks reach",
    "root": "give the same source or destination on all ranks",
    "size": "give tensors of one type and size on all ranks: gather the sizes first, pad to the largest, and trim",
    "position": "let all ranks take the same number of forward and backward passes: agree on skipped batches and the "
    "end of the loop with an all_reduce of the condition",
    "lines": "look for a condition that skips one of these lines on some ranks",
}
_FAULTS = {
    "operation": ("F130", "F87"),
    "root": ("F130",),
    "size": ("F130",),
    "position": ("F80", "F82"),
    "lines": ("F91", "F130"),
}
_OF: dict[str, Callable[[Collective], object]] = {
    "operation": lambda call: call.op,
    "size": lambda call: (call.equal_bytes, call.dtype.replace("bool", "uint8")),  # both travel as bytes
    "root": lambda call: call.root,
    "position": lambda call: call.before,
    "lines": lambda call: call.place,
}
"""Ways in which calls with one number can differ."""


@dataclass(frozen=True)
class _Mismatch:
    """The first call of a group that differs: its number, how, and the calls by rank."""

    number: int
    kind: str
    calls: _Calls


class CollectivesDiffer(Audit):
    """Compares the calls of all ranks of each group."""

    code, name, topic = "DP161", "collectives-differ", "collectives"
    faults = ("F75", "F78", "F80", "F82", "F87", "F91", "F130")
    needs = ("collectives", "groups")
    explains_divergence = True

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._whole: set[int] = set()
        self._calls: AcrossRanks[Collective] = AcrossRanks()
        self._ends: AcrossRanks[CollectivesCounted] = AcrossRanks()
        self._recent: dict[_Group, list[tuple[int, _Calls]]] = defaultdict(list)
        self._first: dict[_Group, _Mismatch] = {}
        self._totals: dict[_Group, Mapping[int, CollectivesCounted]] = {}
        self._compared = 0

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, GroupMade) and event.world == self.world:  # else names of groups mean nothing to others
            self._whole.add(rank)
        elif isinstance(event, Collective) and event.number is not None and rank in self._whole:
            group = (attempt_of(event), event.group, event.size)
            calls = self._calls.add((group, event.number), rank, event, event.size)
            if calls is not None and len(calls) > 1:
                self._compare(group, event.number, calls)
        elif isinstance(event, CollectivesCounted) and rank in self._whole:
            group = (attempt_of(event), event.group, event.size)
            ends = self._ends.add(group, rank, event, event.size)
            if ends is None:
                return
            counted = all(end.issued is not None for end in ends.values())
            if _differ(ends, lambda end: end.calls) or (counted and _differ(ends, lambda end: end.issued)):
                self._totals[group] = ends

    def _compare(self, group: _Group, number: int, calls: _Calls) -> None:
        self._compared += 1
        recent = self._recent[group]
        recent[:] = [each for each in recent if each[0] >= number - 2] + [(number, calls)]
        if group in self._first and self._first[group].kind != "lines":
            return
        kind = _kind(calls) or ("lines" if group not in self._first and _out_of_step(recent) else "")
        if kind:
            self._first[group] = _Mismatch(number, kind, calls)

    def findings(self) -> list[Finding]:
        """At most one: the first call that differs, in any group, or the numbers at the end."""
        for group, first in sorted(self._first.items(), key=lambda each: (each[1].kind == "lines", each[0])):
            if first.kind == "lines" and self._totals:
                break
            return [self._differs(group, first)]
        return [self._ended(group, ends) for group, ends in sorted(self._totals.items())[:1]]

    def _differs(self, group: _Group, first: _Mismatch) -> Finding:
        calls = first.calls
        ranks = _apart(calls, first.kind)
        lowest, other = min(rank for rank in calls if rank not in ranks), ranks[0]
        faults = _FAULTS[first.kind]
        if first.kind == "size" and calls[other].op == "all_gather":
            faults = ("F75", "F130")
        severity: Severity = "warning" if first.kind == "lines" else "error"
        pair = "; ".join(f"rank {rank} calls {_text(calls[rank], first.kind)}" for rank in (lowest, other))
        effect = {
            "position": "each of them pairs with another collective of the other rank, and takes its numbers",
            "lines": "the calls are equal, their lines out of step: numbers of one line may reach the other",
        }.get(first.kind, "what they receive is garbage, or they hang")
        return self.finding(
            severity,
            f"the {ordinal(first.number)} collective of the script on {_name(group)} differs: {pair}; {effect}",
            _ADVICE[first.kind],
            faults=faults,
            place=calls[other].place,
            rank=other,
            step=calls[other].step,
            number=first.number,
            differs=first.kind,
            ranks=ranks,
            calls={str(rank): _text(call, first.kind) for rank, call in sorted(calls.items())},
        )

    def _ended(self, group: _Group, ends: Mapping[int, CollectivesCounted]) -> Finding:
        by_script = _differ(ends, lambda end: end.calls)
        counts = {rank: end.calls if by_script else end.issued for rank, end in sorted(ends.items())}
        other = differing(counts)[0]
        what = "from the script" if by_script else "with those of DDP"
        return self.finding(
            "error",
            f"at the end of the script rank {min(counts)} has called {counts[min(counts)]} collectives on "
            f"{_name(group)} ({what}), and rank {other} {counts[other]}: some of them met other ones, or nobody",
            _ADVICE["operation" if by_script else "position"],
            faults=("F78", "F87") if by_script else _FAULTS["position"],
            rank=other,
            counts={str(rank): count for rank, count in counts.items()},
        )

    def looked_at(self) -> str:
        return f"{self._compared} collectives, call by call" if self._compared else ""


def _kind(calls: _Calls) -> str:
    """How calls with one number differ; empty where they do not."""
    if any(call.equal_bytes is None for call in calls.values()):
        kinds = ["operation", "root", "position"]
    else:
        kinds = ["operation", "size", "root", "position"]
    if any(call.before is None for call in calls.values()):
        kinds.remove("position")
    return next((kind for kind in kinds if _differ(calls, _OF[kind])), "")


def _differ(values: Mapping[int, T], of: Callable[[T], object]) -> bool:
    return bool(differing({rank: of(each) for rank, each in values.items()}))


def _apart(calls: _Calls, kind: str) -> list[int]:
    """The ranks that do something else than most, or than the lowest rank where no more ranks do one thing."""
    by_value: dict[object, list[int]] = defaultdict(list)
    for rank in sorted(calls):
        by_value[_OF[kind](calls[rank])].append(rank)
    most = max(by_value.values(), key=len)
    return sorted(set(calls) - set(most))


def _out_of_step(recent: list[tuple[int, _Calls]]) -> bool:
    """Three calls in a row at other lines, which a rank comes to one call later than another.

    Roles of ranks also lead to other lines: `if rank == source: broadcast(...) else: broadcast(...)`. So operations
    with a root do not count, and both ranks have to come to both lines.
    """
    if len(recent) < 3 or any(call.root is not None for _, calls in recent for call in calls.values()):
        return False
    for rank in recent[0][1]:
        lowest = [calls[min(calls)].place for _, calls in recent]
        own = [calls[rank].place for _, calls in recent]
        apart = all(a != b for a, b in zip(lowest, own, strict=True)) and None not in (*lowest, *own)
        if apart and (own[:-1] == lowest[1:] or lowest[:-1] == own[1:]):
            return True
    return False


def _text(call: Collective, kind: str) -> str:
    size = f" of {call.equal_bytes:,} bytes ({call.dtype})" if call.equal_bytes is not None else ""
    root = f" with root {call.root}" if call.root is not None else ""
    place = f" at {call.place}" if call.place is not None else ""
    before = f" after {call.before} other collectives, those of DDP included" if kind == "position" else ""
    return f"{call.op}{size}{root}{place}{before}"


def _name(group: _Group) -> str:
    return f"a process group of {group[2]} ranks" if group[1] != "0" else "the default process group"
