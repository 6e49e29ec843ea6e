"""Ranks read the same batches of a stream, at different steps.

What it finds:
    A training loader over an IterableDataset that gives several ranks the same batches within a pass. Ranks that have
    the same batch at the same step are DP122's.

Why it matters:
    Samples are trained on several times in an epoch, and the run does less than its devices could.

Repair:
    Let `__iter__` yield the part of this rank and worker only: `islice(stream, shard, None, shards)` with
    `shard = rank * num_workers + worker`, or `datasets.distributed.split_dataset_by_node`.

Known problems:
    Batches are recognized as a whole: ranks that group the same samples differently are not seen.

References:
    F11. https://github.com/huggingface/datasets/issues/5360
"""

from __future__ import annotations

from collections import defaultdict

from paceline.audits.audit import Audit
from paceline.audits.loader_passes import Pass, pass_of
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event, attempt_of
from paceline.records.observed_rank import InputSeen, LoaderBegun
from paceline.records.schema import Finding

_LEAST = 6
"""Different batches on each rank."""
_SHARE, _NEARLY_ALL = 0.5, 0.9
_MOST_BATCHES, _MOST_PASSES = 256, 2
"""Of each loader and rank."""


class IterableNotSharded(Audit):
    """Looks for batches of a stream that several ranks were given."""

    code, name, topic = "DP125", "iterable-not-sharded", "data"
    faults = ("F11",)
    needs = ("wrappers", "loaders")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._digests: dict[Pass, set[str]] = defaultdict(set)

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, InputSeen) and event.loader is not None and event.digest:
            key = (attempt_of(event), rank, event.loader, event.number or 0)
            if key[3] < _MOST_PASSES and len(self._digests[key]) < _MOST_BATCHES:
                self._digests[key].add(event.digest)

    def findings(self) -> list[Finding]:
        if not self.run.parallel.everywhere or self.run.inputs.found() is not None:
            return []
        for begun in self._streams():
            digests = {rank: self._of(rank, one) for rank, one in begun.items()}
            if any(len(each) < _LEAST for each in digests.values()):
                continue
            low, *others = digests
            ranks = [rank for rank in others if _overlap(digests[low], digests[rank]) >= _SHARE]
            if ranks:
                return [self._found(begun, digests, low, ranks)]
        return []

    def looked_at(self) -> str:
        passes = len(self._streams())
        return f"batches of {passes} passes over streams" if passes else ""

    def _streams(self) -> list[dict[int, LoaderBegun]]:
        begun = [each for each in self.run.passes.begun() if all(one.iterable for one in each.values())]
        return [each for each in begun if all(self._of(rank, one) for rank, one in each.items())]

    def _of(self, rank: int, begun: LoaderBegun) -> set[str]:
        return self._digests.get(pass_of(rank, begun), set())

    def _found(
        self, begun: dict[int, LoaderBegun], digests: dict[int, set[str]], low: int, ranks: list[int]
    ) -> Finding:
        first = begun[ranks[0]]
        same = len(digests[low] & digests[ranks[0]])
        seen = min(len(digests[low]), len(digests[ranks[0]]))
        return self.finding(
            "error" if same >= _NEARLY_ALL * seen else "warning",
            f"{ranks_text([low, *ranks])} train on the same batches of the stream ({same} of {seen} compared), at "
            f"different steps; the data set is not sharded over ranks",
            "let __iter__ yield the part of this rank and worker only: islice(stream, rank, None, world)",
            place=first.place,
            rank=ranks[0],
            step=first.step,
            same=same,
            compared=seen,
            dataset=first.dataset,
        )


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / min(len(one), len(other))
