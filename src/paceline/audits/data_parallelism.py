"""Detects jobs whose ranks train one model together, so that their data should be sharded.

Tensor, pipeline and hybrid parallelism give several ranks the same data on purpose: there, wrappers have groups that
are smaller than the job. Ranks that share no gradients at all may train models of their own.
"""

from __future__ import annotations

from paceline.records.event import Event
from paceline.records.observed import Collective
from paceline.records.observed_rank import ModelWrapped

_REDUCED = ("gradients", "parameters")


class DataParallelism:
    """Collects who averages gradients with whom."""

    def __init__(self) -> None:
        self._world = 0
        self._groups: set[int] = set()
        self._own: set[int] = set()
        self.dropout = 0
        """Layers of the models that were wrapped, on the rank that has most."""

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take wrapped models, and gradients that the script itself averages."""
        self._world = world
        if isinstance(event, ModelWrapped):
            self._groups.add(event.group)
            self.dropout = max(self.dropout, event.layers.get("dropout", 0))
        elif isinstance(event, Collective) and event.on in _REDUCED and event.op.startswith("all_reduce"):
            self._own.add(event.size)

    @property
    def everywhere(self) -> bool:
        """Each model is synchronized over all ranks of the job."""
        if self._world < 2:
            return False
        return self._groups == {self._world} if self._groups else self._world in self._own

    @property
    def partly(self) -> bool:
        """Some model is synchronized over fewer ranks than the job has."""
        return any(group < self._world for group in self._groups)
