"""State of a run, derived from its events: trackers that all audits share, each fed once."""

from __future__ import annotations

from typing import NoReturn, Protocol

from paceline.audits.batch_slices import BatchSlices
from paceline.audits.data_parallelism import DataParallelism
from paceline.audits.evaluation_windows import EvaluationWindows
from paceline.audits.file_touches import FileTouches
from paceline.audits.identical_inputs import IdenticalInputs
from paceline.audits.last_positions import LastPositions
from paceline.audits.loader_passes import LoaderPasses
from paceline.audits.replicas import Replicas
from paceline.records.event import Event
from paceline.records.observed_rank import RankStarted


class Tracker(Protocol):
    """Collects events of one kind from all ranks."""

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take an event of a rank; events of other kinds are ignored."""


class RunState:
    """Trackers of a run.

    Attributes:
        world: ranks of the job; 0 before the first event.
        replicas: parameters of the ranks, and where they differ.
        parallel: which ranks train one model together.
        passes: passes over data loaders.
        inputs: ranks with the same inputs.
        slices: shapes of the inputs of each loader.
        windows: collectives and writes that follow an evaluation.
        files: files that ranks opened.
        positions: how far each rank came.
    """

    def __init__(self) -> None:
        self.world = 0
        self.replicas = Replicas()
        self.parallel = DataParallelism()
        self.passes = LoaderPasses()
        self.inputs = IdenticalInputs()
        self.slices = BatchSlices()
        self.windows = EvaluationWindows()
        self.files = FileTouches()
        self.positions = LastPositions()
        self._trackers: dict[str, Tracker] = {name: value for name, value in vars(self).items() if name != "world"}

    def feed(self, rank: int, event: Event) -> None:
        """Take an event of a rank."""
        if isinstance(event, RankStarted):
            self.world = max(self.world, event.world)
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.feed(rank, event, self.world)
            except Exception as error:  # noqa: BLE001  a tracker that fails must not end the run or the other trackers
                del self._trackers[name]
                setattr(self, name, _Failed(f"{name} failed with {type(error).__name__}: {error}"))


class _Failed:
    """Stands for a tracker that failed: the judge gives up the audits that use it."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(self._why)
