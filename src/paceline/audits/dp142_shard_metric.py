"""A metric is that of one rank's shard only.

What it finds:
    An evaluation that is sharded over ranks, after which no rank sends its result to another.

Why it matters:
    The number that rank 0 prints or decides on is measured on its own part of the data only.

Repair:
    Sum the metric's numerator and its count over ranks: `dist.all_reduce(torch.stack([correct, count]))`.

Known problems:
    Results that ranks merge through other means than collectives and files, as a store, are not seen.

References:
    F71. https://github.com/NVIDIA/physicsnemo/pull/1754
"""

from __future__ import annotations

from collections import defaultdict

from paceline.audits.audit import Audit
from paceline.audits.index_set import shared
from paceline.audits.loader_passes import Series, SharedPass, same_data
from paceline.audits.run_state import RunState
from paceline.records.event import Event
from paceline.records.observed import NotObserved
from paceline.records.observed_rank import RankStarted
from paceline.records.schema import Finding

_SIGNAL = "collectives"


class ShardMetric(Audit):
    """Looks for collectives between an evaluation and the next training step."""

    code, name, topic = "DP142", "shard-metric", "evaluation"
    faults = ("F71",)
    needs = ("loaders", "collectives")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._blind = False

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, RankStarted):
            self._blind |= bool(event.watched) and _SIGNAL not in event.watched
        elif isinstance(event, NotObserved):
            self._blind |= event.what == _SIGNAL

    def findings(self) -> list[Finding]:
        """At most one, for the first loop whose evaluations are never merged."""
        if self._blind:
            return []
        series: dict[Series, list[SharedPass]] = defaultdict(list)
        for each in self._evaluations():
            series[each.series].append(each)
        for passes in series.values():
            if all(self._unmerged(each) for each in passes):
                return [self._found(passes)]
        return []

    def looked_at(self) -> str:
        passes = len(self._evaluations())
        return f"collectives after {passes} sharded evaluations" if passes and not self._blind else ""

    def _evaluations(self) -> list[SharedPass]:
        """After the first training step: a pass before it may count classes or warm up."""
        return [
            each
            for each in self.run.passes.shared()
            if each.evaluation and each.aligned and each.first.step > 0 and _sharded(each)
        ]

    def _unmerged(self, each: SharedPass) -> bool:
        """Every rank has gone on without a collective that merges; not all of them wrote files."""
        windows = [self.run.windows.get(rank, begun) for rank, begun in each.begun.items()]
        return all(one.merges is False for one in windows) and not all(one.wrote for one in windows)

    def _found(self, passes: list[SharedPass]) -> Finding:
        first = passes[0]
        rank = min(first.begun)
        begun, ended = first.begun[rank], first.ended[rank]
        own = f"{ended.samples} of {begun.samples} samples" if ended.samples and begun.samples else "its own shard"
        return self.finding(
            "warning",
            f"the evaluation is sharded over {self.world} ranks and its result is not reduced: rank {rank} "
            f"reports {own}",
            "sum the metric's numerator and its count over ranks with all_reduce, then divide",
            place=begun.place,
            rank=rank,
            step=begun.step,
            evaluations=len(passes),
            samples=ended.samples,
            of=begun.samples,
        )


def _sharded(each: SharedPass) -> bool:
    """Each rank evaluates another part of one data set."""
    if same_data(each.begun.values()) is False:
        return False
    bits = each.bits
    if bits is None:
        ranks = {one.sampler_facts.get("rank") for one in each.begun.values()}
        return each.replicas > 1 and len(ranks) == len(each.begun)
    overlap = shared(bits.values()).bit_count()
    if each.replicas > 1:
        return overlap < len(bits)  # what a sampler repeats to fill up
    return overlap == 0 and all(one.bit_count() > 1 for one in bits.values())
