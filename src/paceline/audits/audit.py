"""The base class of all audits of observed runs.

An audit is fed the events of all ranks, live or from a saved run, and says what is wrong. It is a pure function of the
events: the order within a rank is that of the program, the order between ranks means nothing. `findings` and
`looked_at` may be called at any time.

A module `dp1xx_<slug>.py` holds one audit. Its docstring has the headings of `HEADINGS`; docs/reference/audits.md is
generated from it.
"""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Hashable
from typing import Any, ClassVar, Generic, TypeVar

from paceline.records.event import Event, Severity
from paceline.records.observed_rank import RankStarted
from paceline.records.place import Place
from paceline.records.schema import Finding

HEADINGS = ("What it finds", "Why it matters", "Repair", "Known problems", "References")
TOPICS = ("replicas", "gradients", "data", "schedule", "evaluation", "files")
T = TypeVar("T")


class Audit(abc.ABC):
    """One kind of fault, judged from events.

    Attributes:
        code: permanent, DP1xx.
        name: a few words with hyphens.
        topic: one of `TOPICS`.
        faults: ids of the faults that it can name.
        needs: signals (names of probes) without which it sees nothing.
        explains_divergence: a finding of it says why ranks hold different weights.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    topic: ClassVar[str]
    faults: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]]
    explains_divergence: ClassVar[bool] = False

    def __init__(self) -> None:
        self.world = 0
        """Ranks of the job; 0 before the first event."""

    def take(self, rank: int, event: Event) -> None:
        """Feed one event of a rank."""
        if isinstance(event, RankStarted):
            self.world = max(self.world, event.world)
        self.feed(rank, event)

    @abc.abstractmethod
    def feed(self, rank: int, event: Event) -> None:
        """Take note of an event, if it matters here."""

    @abc.abstractmethod
    def findings(self) -> list[Finding]:
        """The findings from the events so far."""

    @abc.abstractmethod
    def looked_at(self) -> str:
        """A short description of the data that were judged; empty if there were none."""

    def finding(
        self,
        severity: Severity,
        message: str,
        advice: str,
        *,
        faults: tuple[str, ...],
        place: Place | None = None,
        rank: int | None = None,
        step: int | None = None,
        **evidence: Any,
    ) -> Finding:
        """A finding of this audit.

        Args:
            severity: `error` where the evidence leaves no other explanation, `warning` where it is probable.
            message: what happens, with rank and step, and what it does to the result.
            advice: the shortest correct repair.
            faults: one or two ids out of `Audit.faults`.
            place: the line of the script.
            rank: the first rank concerned.
            step: the first step concerned.
            evidence: numbers and names that the message rests on.
        """
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity,
            message=message,
            advice=advice,
            faults=list(faults),
            path=place.path if place else None,
            line=place.line if place else None,
            rank=rank,
            step=step,
            evidence={"source": "run", **evidence},
        )


class AcrossRanks(Generic[T]):
    """Collects one value a rank under a key, until every rank of the job has given its own.

    Args:
        keep: complete keys that are kept, the oldest are forgotten first.
    """

    def __init__(self, keep: int = 1000) -> None:
        self._open: dict[Hashable, dict[int, T]] = defaultdict(dict)
        self._complete: set[Hashable] = set()
        self._keep = keep

    def add(self, key: Hashable, rank: int, value: T, world: int) -> dict[int, T] | None:
        """Add a rank's value. Returns the values by rank once, when the last of `world` ranks has given its own."""
        if key in self._complete:
            return None
        values = self._open[key]
        values[rank] = value
        if world == 0 or len(values) < world:
            return None
        del self._open[key]
        self._complete.add(key)
        while len(self._complete) > self._keep:
            self._complete.pop()
        return dict(sorted(values.items()))


def ranks_text(ranks: list[int]) -> str:
    """`rank 1`, `ranks 0 and 2`, `ranks 0, 1, 2 and 5 more`."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 6:
        return f"ranks {', '.join(names[:5])} and {len(names) - 5} more"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
