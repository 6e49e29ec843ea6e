"""The data set differs between ranks.

What it finds:
    Ranks whose DistributedSampler shards data sets of different lengths, or of equal length and different content
    or order.

Why it matters:
    Index i names another sample on another rank, so some samples are read twice in an epoch and others never. With
    different lengths ranks also run different numbers of steps, and the job hangs at the end of an epoch.

Repair:
    Build the list of samples in the same order on all ranks: sort what `os.listdir`, `glob` or a set gives, or let
    rank 0 build the list and broadcast it.

Known problems:
    Content is compared where the data set holds lists, arrays or tensors. Data that each rank draws at random for
    itself are reported with severity `info`.

References:
    F13. https://github.com/fastai/fastai/pull/2006
    F14. https://github.com/Lightning-AI/pytorch-lightning/issues/20404
"""

from __future__ import annotations

from collections import defaultdict

from paceline.audits.across_ranks import differing
from paceline.audits.audit import Audit
from paceline.audits.loader_passes import replicas_of
from paceline.audits.run_state import RunState
from paceline.audits.wording import count_text, ranks_text
from paceline.records.event import Event, Severity, attempt_of
from paceline.records.observed_rank import LoaderBegun, LoaderEnded
from paceline.records.schema import Finding

_Loop = tuple[object, ...]
_MOST_LOADERS = 200


class DataSetDiffers(Audit):
    """Compares the data sets of all ranks, loader by loader."""

    code, name, topic = "DP126", "data-set-differs", "data"
    faults = ("F13", "F14")
    needs = ("loaders",)

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._loaders: dict[_Loop, dict[int, list[LoaderBegun]]] = defaultdict(lambda: defaultdict(list))
        self._ended: dict[tuple[int, int, int], LoaderEnded] = {}
        self._known: set[tuple[int, int, int]] = set()
        self._data: dict[tuple[int, int, int], int] = {}

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, LoaderBegun):
            key = (attempt_of(event), rank, event.loader)
            self._data.setdefault((attempt_of(event), rank, event.data), event.loader)
            if key not in self._known and event.loader < _MOST_LOADERS:
                self._known.add(key)
                self._loaders[_loop(event)][rank].append(event)
        elif isinstance(event, LoaderEnded) and event.number == 0 and event.loader < _MOST_LOADERS:
            self._ended[attempt_of(event), rank, event.loader] = event

    def findings(self) -> list[Finding]:
        """At most one, for the first loader whose data sets differ."""
        for begun in self._compared():
            found = self._lengths(begun) or self._contents(begun)
            if found is not None:
                return [found]
        return []

    def looked_at(self) -> str:
        loaders = len(self._compared())
        return f"data sets of {count_text(loaders, 'loader')}" if loaders else ""

    def _compared(self) -> list[dict[int, LoaderBegun]]:
        """Loaders that shard one data set over ranks."""
        found = []
        for ranks in self._loaders.values():
            if self.world < 2 or len(ranks) < self.world:
                continue
            for each in zip(*(ranks[rank] for rank in sorted(ranks)), strict=False):
                begun = dict(zip(sorted(ranks), each, strict=True))
                sharded = all(replicas_of(one) > 1 for one in each)
                if sharded and len({one.step for one in each}) == 1:
                    found.append(begun)
        return found

    def _lengths(self, begun: dict[int, LoaderBegun]) -> Finding | None:
        lengths = {rank: one.samples for rank, one in begun.items()}
        if None in lengths.values() or len(set(lengths.values())) == 1:
            lengths = {rank: one.root_samples for rank, one in begun.items()}
        if None in lengths.values() or len(set(lengths.values())) == 1:
            return None
        base, ranks = min(lengths), differing(lengths)
        ended = [self._ended.get((attempt_of(one), rank, one.loader)) for rank, one in begun.items()]
        complete = [one for one in ended if one is not None and one.exhausted and one.trained]
        uneven = len(complete) == len(ended) and len({one.batches for one in complete}) > 1
        effect = (
            "ranks run different numbers of steps" if uneven else "index i is a different sample on different ranks"
        )
        return self._report(
            "error" if uneven else "warning",
            f"the data set has {lengths[base]} samples on rank {base} and {lengths[ranks[0]]} on "
            f"{ranks_text(ranks)}; {effect}",
            "F14",
            begun[ranks[0]],
            ranks[0],
            {"samples": {str(rank): length for rank, length in lengths.items()}},
        )

    def _contents(self, begun: dict[int, LoaderBegun]) -> Finding | None:
        contents = {rank: one.content for rank, one in begun.items()}
        if None in contents.values() or len(set(contents.values())) == 1:
            return None
        if any(self._data[attempt_of(one), rank, one.data] != one.loader for rank, one in begun.items()):
            return None  # used before through another loader, so that it may hold a cache
        unordered = {one.content_unordered for one in begun.values()}
        base, ranks = min(contents), differing(contents)
        what = "holds its samples in another order" if len(unordered) == 1 and None not in unordered else "differs"
        return self._report(
            "info" if len(unordered) > 1 and None not in unordered else "warning",
            f"the data set {what} on {ranks_text(ranks)} than on rank {base}; index i is a different sample there, "
            "so that samples are read twice or never"
            if what != "differs"
            else f"the data set of {ranks_text(ranks)} holds other data than that of rank {base}, though a "
            "DistributedSampler shards one data set",
            "F13",
            begun[ranks[0]],
            ranks[0],
            {"content": {str(rank): content for rank, content in contents.items()}},
        )

    def _report(
        self, severity: Severity, message: str, fault: str, begun: LoaderBegun, rank: int, evidence: dict[str, object]
    ) -> Finding:
        return self.finding(
            severity,
            message,
            "sort the list of samples, or let rank 0 build it and broadcast it to all ranks",
            faults=(fault,),
            place=begun.place,
            rank=rank,
            step=begun.step,
            dataset=begun.dataset,
            **evidence,
        )


def _loop(begun: LoaderBegun) -> _Loop:
    """Identify a loader on all ranks, also where its data differ."""
    where = (begun.place.path, begun.place.line) if begun.place else begun.loader
    return attempt_of(begun), where, begun.dataset, begun.batch_size, begun.loader_class, begun.iterable
