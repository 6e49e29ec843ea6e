"""Observed runs of `paceline run`, written by hand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.records.event import Event
from paceline.records.launched import Attempt, RankExit
from paceline.records.ledger import LedgerWriter
from paceline.records.observation import ObservedRun, Unseen, WatchedRanks, write_observation
from paceline.records.observed import StepTiming
from paceline.records.observed_rank import GroupMade, LoaderBegun, LoaderEnded, ObservedStep, RankStarted, ScriptEnded
from paceline.records.place import Place
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import End, Finding, RunInfo, Start
from paceline.records.writer import EventWriter
from tests.audits.observed_events import wrapped

ERROR = Finding(
    code="DP121",
    name="no-sampler",
    severity="error",
    message="every rank trains on all 8 samples <b>twice</b>",
    advice="pass sampler=DistributedSampler(dataset)",
    faults=["F01", "F03"],
    path="train.py",
    line=12,
    rank=1,
    step=4,
    evidence={"source": "run", "samples": 8, "ranks": [0, 1], "why": "<script>alert(1)</script>"},
)
NOTE = Finding(code="DP129", name="padded-training", severity="info", message="a note", advice="", faults=["F18"])
WATCHED = {"replicas": ["parameters of 2 ranks"], "data": ["samples of 2 passes", "inputs"], "files": []}


def timing(step: int, elapsed_s: float, **more: Any) -> StepTiming:
    """A step of rank 0 that hooks timed."""
    given = {"duration_s": 0.1, "source": "hooks", "sampled": True}
    return StepTiming(step=step, elapsed_s=elapsed_s, **(given | more))


def taken(step: int, loss: float | None, **more: Any) -> ObservedStep:
    """An optimizer step."""
    given = {"optimizer": 0, "lr": [0.1], "forwards": 1, "synchronized": [True], "backwards": 1}
    rest = {"backwards_unwrapped": 0, "reductions": 1, "own_reductions": 0}
    return ObservedStep(step=step, loss=loss, **(given | rest | more))


def ended(step: int, samples: int) -> ScriptEnded:
    """A rank leaves in order."""
    return ScriptEnded(step=step, scheduler_steps=0, observer_s=0.0, elapsed_s=2.0, samples=samples)


def begun(loader: int = 0, number: int = 0, *, samples: int = 8, **more: Any) -> LoaderBegun:
    """A pass begins."""
    given = {"dataset": "Digits", "data": 0, "samples": samples, "root_samples": samples, "iterable": False}
    rest = {
        "batch_size": 2,
        "sampler": "DistributedSampler",
        "sampler_facts": {},
        "place": Place(path="train.py", line=9),
    }
    return LoaderBegun(loader=loader, number=number, step=0, **(given | rest | more))


def left(loader: int = 0, number: int = 0, *, exhausted: bool = True) -> LoaderEnded:
    """A pass ends."""
    return LoaderEnded(
        loader=loader, number=number, step=2, batches=2, samples=4, exhausted=exhausted, backwards=2, recorded=True
    )


def training(rank: int, *, samples: int = 40) -> list[Event]:
    """Ten steps of 0.2 s, the loss of which halves from a start of its own for each rank."""
    events: list[Event] = []
    for number in range(1, 11):
        events.append(taken(number, (1.0 + rank) / 2**number, lr=[0.1 / number]))
        events.append(timing(number, 0.2 * number))
    return [wrapped(size=2), begun(), *events, left(), ended(10, samples)]


def observation(findings: Sequence[Finding] = (), **more: Any) -> ObservedRun:
    """What a judge found in a job of two ranks."""
    given = {"exit_code": 0, "run": "runs/train", "ranks": WatchedRanks(observed=[0, 1], world=2), "steps": 10}
    rest = {"steps_per_s": 5.0, "samples_per_s": 40.0, "findings": [*findings], "watched": WATCHED}
    unseen = [Unseen(what="files", why="no file was opened")]
    return ObservedRun(**(given | rest | {"not_observed": unseen} | more))


def write_run(
    path: Path,
    ranks: dict[int, Sequence[Event]],
    *,
    found: ObservedRun | None = None,
    ledger: dict[tuple[int, int, int], Sequence[Sequence[int]]] | None = None,
    world: int = 2,
) -> Path:
    """A run directory.

    Args:
        path: of it.
        ranks: events of each rank.
        found: observation.json; none is written without it.
        ledger: batches of indices, by loader, pass and rank.
        world: ranks of the job.
    """
    run = RunDir(path)
    info = RunInfo(
        schema=1,
        verb="run",
        name=path.name,
        command=["paceline", "run", "train.py"],
        started_at="2026-03-01T09:30:00+00:00",
        versions={"torch": "2.14.1"},
        config={"training_script": "train.py"},
    )
    write_info(run, info)
    with EventWriter(run.launcher_events("host")) as events:
        events.write(Start(session=1, time_unix_s=0.0, world=world, step=0))
        exits = [
            RankExit(rank=rank, local_rank=rank, pid=70 + rank, exit_code=0, after_s=3.0, stopped=False)
            for rank in range(world)
        ]
        events.write(
            Attempt(
                attempt=1, outcome="succeeded", ranks=exits, logs=None, started_unix_s=1.0, duration_s=3.0, world=world
            )
        )
        events.write(End(step=0, reason="finished", exit_code=0, elapsed_s=4.0))
    for rank, happened in ranks.items():
        with EventWriter(run.events(rank)) as events:
            for event in [_started(rank, world), GroupMade(rank=rank, world=world, backend="gloo"), *happened]:
                events.write(event)
    writer = LedgerWriter(run)
    for (loader, number, rank), batches in (ledger or {}).items():
        writer.add(rank, 1, (loader, number), [(index, array("q", batch)) for index, batch in enumerate(batches)])
    if found is not None:
        write_observation(run, found)
    return path


def _started(rank: int, world: int) -> RankStarted:
    return RankStarted(
        rank=rank,
        local_rank=rank,
        world=world,
        pid=70 + rank,
        host="host",
        started_unix_s=0.0,
        script="train.py",
        directory="/job",
        versions={},
        threads=1,
    )
