"""Detects scripts in which each rank trains on a slice of a shared batch.

A script may draw the same global batch on all ranks and train rank r on its r-th part. Its loaders then look as if no
rank had a shard of its own, and all is well.
"""

from __future__ import annotations

from collections import defaultdict

from paceline.audits.loader_passes import SharedPass
from paceline.records.event import Event, attempt_of
from paceline.records.observed_rank import InputSeen

_MOST = 32
"""Shapes kept of each loader and rank."""


class BatchSlices:
    """Collects the shapes of inputs by the loader that they came from."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[int, int, int], set[tuple[int, ...]]] = defaultdict(set)
        self._rows: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        self._world = 0

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take what a model was given."""
        if isinstance(event, InputSeen) and event.loader is not None:
            self._world = world
            key = (attempt_of(event), rank, event.loader)
            if len(self._rows[key]) < _MOST:
                self._rows[key].add(event.rows)
                self._shapes[key].add(tuple(event.shape[1:2]))

    def trained(self, each: SharedPass) -> bool:
        """Every rank was seen to train on batches of this loader."""
        return all(self._key(rank, each) in self._rows for rank in each.begun)

    def whole(self, each: SharedPass) -> bool | None:
        """True where every rank trains on whole batches, False where one takes slices; None where it is not known."""
        verdicts = [self._whole(rank, each) for rank in each.begun]
        if False in verdicts:
            return False
        return None if None in verdicts else True

    def _whole(self, rank: int, each: SharedPass) -> bool | None:
        begun, ended = each.begun[rank], each.ended[rank]
        batch = begun.batch_size or (-(-ended.samples // ended.batches) if ended.samples and ended.batches else 0)
        key = self._key(rank, each)
        rows = self._rows.get(key, set())
        if not batch or not rows:
            return None
        if batch in rows:
            return True
        if {batch // self._world, -(-batch // self._world)} & rows:
            return False
        return True if (batch,) in self._shapes[key] else None

    def _key(self, rank: int, each: SharedPass) -> tuple[int, int, int]:
        return attempt_of(each.begun[rank]), rank, each.begun[rank].loader
