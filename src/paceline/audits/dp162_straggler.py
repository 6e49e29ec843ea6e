"""One rank is late at most steps, and the others wait for it.

What it finds:
    The rank that is last to finish its own part of the backward pass in more than 80 % of the recorded steps, by more
    than 2 ms and 5 % of a step. It says how long the others wait, and if the time goes before the backward pass or
    within it. Without DDP, the same for the first collective of the script in each step. An information: results are
    right, and time is lost.

Why it matters:
    DDP lets all ranks wait for the slowest one. Durations do not show which one it is: a rank that is late and those
    that wait for it take the same time for each step.

Repair:
    Look at what this rank does alone: longer samples, a slower disk, loader workers without a core, logging, other
    programs on its cores. Give all ranks batches of about the same amount of work.

Known problems:
    Ranks of one machine are compared, since machines have clocks of their own. On GPUs the host does not wait for
    other ranks within the backward pass, so nothing is found there. Steps are recorded less often the longer a run is.

References:
    F127. https://arxiv.org/abs/2505.05713
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median

from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.records.event import Event, attempt_of
from paceline.records.observed import Collective, StepTiming
from paceline.records.observed_rank import ObservedStep, RankStarted
from paceline.records.place import Place
from paceline.records.schema import Finding

_INSTANTS, _SHARE = 20, 0.8
"""Recorded steps at least, and the share of them at which the same rank has to be last."""
_LEAST_S, _OF_STEP = 0.002, 0.05
"""Median wait of the others, in seconds and as a share of a step. Less is noise of a machine with few cores."""


@dataclass(frozen=True)
class _Arrival:
    """One rank at one step.

    Attributes:
        begun_s: its backward pass began, or it came to the collective.
        done_s: its own part was done; as `begun_s` for a collective.
        ended_s: it went on; None where that is not known.
        place: of the backward pass or collective.
    """

    begun_s: float
    done_s: float
    ended_s: float | None
    place: Place | None


_Instants = Mapping[int, Mapping[int, _Arrival]]
"""By step and rank."""


class Straggler(Audit):
    """Compares when ranks of one machine are done with their part of each step."""

    code, name, topic = "DP162", "straggler", "gradients"
    faults = ("F127",)
    needs = ("steps", "backward", "collectives")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._hosts: dict[int, str] = {}
        self._attempt = 0
        self._passes: dict[int, dict[int, _Arrival]] = defaultdict(dict)
        self._calls: dict[int, dict[int, _Arrival]] = defaultdict(dict)
        self._durations: dict[int, list[float]] = defaultdict(list)

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, RankStarted):
            self._hosts[rank] = event.host
        if not isinstance(event, ObservedStep | Collective | StepTiming):
            return
        if attempt_of(event) > self._attempt:  # only the last one counts
            self._attempt = attempt_of(event)
            for each in (self._passes, self._calls, self._durations):
                each.clear()
        if attempt_of(event) < self._attempt:
            return
        match event:
            case ObservedStep(backward_begun_s=float(begun), backward_done_s=float(done), backward_ended_s=ended):
                if event.synchronized and event.synchronized[-1]:
                    self._passes[event.step].setdefault(rank, _Arrival(begun, done, ended, event.backward_place))
            case Collective(step=int(step), size=size, issued_s=at) if size == self.world and event.root is None and at:
                self._calls[step].setdefault(rank, _Arrival(at, at, None, event.place))
            case StepTiming(duration_s=float(duration)):
                self._durations[rank].append(duration)
            case _:
                pass

    def findings(self) -> list[Finding]:
        """At most one."""
        instants = self._instants()
        durations = [each for each in self._durations.values() if each]
        if len(instants) < _INSTANTS or not durations:
            return []
        last = Counter(_last(ranks) for ranks in instants.values())
        rank, times = last.most_common(1)[0]
        step_s = median(median(each) for each in durations)
        wait_s = median(_wait(ranks) for ranks in instants.values() if _last(ranks) == rank)
        if times <= _SHARE * len(instants) or wait_s <= max(_LEAST_S, _OF_STEP * step_s):
            return []
        place = next((each[rank].place for each in instants.values()), None)
        timed = bool(self._passes)
        what = "to finish its part of the backward pass" if timed else "to come to the first collective"
        phase = _phase(instants, rank) if timed else ""
        spent = f", which it spends {phase} the backward pass" if phase else ""
        share = min(1.0, wait_s / step_s)
        return [
            self.finding(
                "info",
                f"rank {rank} is the last {what} in {times} of {len(instants)} recorded steps: the others wait a "
                f"median {wait_s * 1e3:.0f} ms for it{spent}; that is {share:.0%} of a step of {step_s * 1e3:.0f} ms",
                f"look at what rank {rank} does alone: {_LOOK[phase]}",
                place=place,
                rank=rank,
                wait_s=wait_s,
                step_s=step_s,
                last=times,
                steps=len(instants),
                phase=phase,
            )
        ]

    def looked_at(self) -> str:
        """At how many steps."""
        count = len(self._instants())
        return f"arrival of {self.world} ranks in {count} steps" if count else ""

    def _instants(self) -> _Instants:
        """Steps that all ranks recorded and that fit on one clock; none if the job has ranks elsewhere."""
        if self.world < 2 or len(set(self._hosts.values())) != 1 or len(self._hosts) < self.world:
            return {}
        source = self._passes or self._calls
        found = {step: ranks for step, ranks in sorted(source.items()) if len(ranks) == self.world}
        return {step: ranks for step, ranks in found.items() if _one_clock(ranks.values())}


_LOOK = {
    "": "longer samples, a slower disk, logging, other programs on its cores",
    "before": "loading of its data, longer samples, logging, other programs on its cores",
    "within": "longer samples, hooks, other programs on its cores",
}


def _one_clock(ranks: Collection[_Arrival]) -> bool:
    """False if a rank ended before another one began: the reduction needs all of them, so their clocks differ."""
    ends = [each.ended_s for each in ranks if each.ended_s is not None]
    return not ends or max(each.begun_s for each in ranks) <= min(ends)


def _last(ranks: Mapping[int, _Arrival]) -> int:
    return max(ranks, key=lambda rank: ranks[rank].done_s)


def _wait(ranks: Mapping[int, _Arrival]) -> float:
    """How long the others wait for the last rank.

    It is not later than that. It may go on with something that nobody waits for after its last gradient, so the waits
    of the others in DDP count where they are known, less that of the last rank, which is the time of communication.
    """
    last = _last(ranks)
    late_s = _excess({rank: each.done_s for rank, each in ranks.items()}, last)
    waits = {rank: each.done_s - each.ended_s for rank, each in ranks.items() if each.ended_s is not None}
    return min(late_s, _excess(waits, last)) if len(waits) == len(ranks) else late_s


def _excess(values: Mapping[int, float], rank: int) -> float:
    """By how much a rank's value exceeds the median of the others."""
    return values[rank] - median(value for other, value in values.items() if other != rank)


def _phase(instants: _Instants, rank: int) -> str:
    """`before` or `within` the backward pass: where the rank takes longer than the others; empty if not known."""
    before, within = [], []
    for step, ranks in instants.items():
        within.append(_excess({at: each.done_s - each.begun_s for at, each in ranks.items()}, rank))
        ends = {at: each.ended_s for at, each in instants.get(step - 1, {}).items() if each.ended_s is not None}
        if len(ends) == len(ranks):
            before.append(_excess({at: each.begun_s - ends[at] for at, each in ranks.items()}, rank))
    if not before:
        return ""
    return "before" if median(before) > median(within) else "within"
