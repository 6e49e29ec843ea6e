"""The observed program is the same program: weights, optimizer state and random state end bit for bit equal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.launch.ring_drain import RingDrain, make_rings_folder
from paceline.pool.processes import Surroundings, fork_server
from paceline.pool.rank import rank_environment
from paceline.pool.store import start_store
from paceline.records.observed import NotObserved
from paceline.records.observed_rank import ObservedStep
from paceline.records.reader import EventStream
from paceline.records.ring import RINGS_VARIABLE
from paceline.records.rundir import RunDir

PROGRAM = Path(__file__).parent / "programs" / "bits.py"
ROOT = Path(__file__).parents[2]
STEPS = 50
KINDS = [
    "cnn",
    "transformer",
    "accumulate",
    "hook",
    "compile",
    "compile_inner",
    "compile_step",
    "unused",
    "static",
    "workers",
]
BLIND = {"compile_step"}
"""The whole step is compiled code, in which forward and backward passes are not seen; optimizer steps are."""


def digests(kind: str, world: int, folder: Path, *, observe: bool) -> list[str]:
    """What the program says about its end on each rank; on warm ranks, as the zoo's scripts run."""
    folder.mkdir()
    rings, run = make_rings_folder(), RunDir(folder / "run")
    drain = RingDrain(rings, run)
    drain.start()
    try:
        with fork_server().session() as session:
            port = start_store(session, world)
            pids = []
            for rank in range(world):
                job = {
                    "script": str(PROGRAM),
                    "args": [kind, str(folder / "digest")],
                    "directory": str(folder),
                    "observe": observe,
                }
                environment = {**os.environ, **rank_environment(rank, world, port)}
                if observe:
                    environment[RINGS_VARIABLE] = str(rings)
                with (folder / f"{rank}.log").open("wb") as log:
                    pids.append(
                        session.start(
                            "tests.zoo.zoo_rank:run",
                            json.dumps(job).encode(),
                            output=(log.fileno(), log.fileno()),
                            within=Surroundings(environment, path=[str(ROOT), *sys.path]),
                        )
                    )
            deadline = time.monotonic() + 200
            while not all(pid in session.codes for pid in pids):
                assert time.monotonic() < deadline, "the ranks did not end"
                session.wait(0.05)
            codes = [session.codes[pid] for pid in pids]
    finally:
        drain.stop()
    assert codes == [0] * world, (folder / "0.log").read_text()[-2000:]
    assert drain.seen == (set(range(world)) if observe else set())
    if observe:
        was_observed(run, kind, world)
    return [(folder / f"digest.{rank}").read_text() for rank in range(world)]


def was_observed(run: RunDir, kind: str, world: int) -> None:
    """Every probe was there to the end, and every step was seen with its passes."""
    for rank in range(world):
        events = list(EventStream(run.events(rank)))
        assert [each for each in events if isinstance(each, NotObserved)] == []
        steps = [each for each in events if isinstance(each, ObservedStep)]
        assert [each.step for each in steps] == list(range(1, STEPS + 1))
        if kind not in BLIND:
            assert {each.backwards for each in steps} == {4 if kind == "accumulate" else 1}
        assert {each.clips for each in steps} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_an_observed_training_ends_bit_for_bit_as_an_unobserved_one(kind: str, world: int, tmp_path: Path) -> None:
    """After 50 steps on each rank: weights, optimizer state, random state."""
    plain = digests(kind, world, tmp_path / "plain", observe=False)

    observed = digests(kind, world, tmp_path / "observed", observe=True)

    assert observed == plain


def test_an_observed_step_on_two_ranks_ends_as_an_unobserved_one(tmp_path: Path) -> None:
    """The one of them that every test run checks."""
    plain = digests("cnn", 2, tmp_path / "plain", observe=False)

    observed = digests("cnn", 2, tmp_path / "observed", observe=True)

    assert observed == plain


@pytest.mark.slow
def test_paceline_run_ends_bit_for_bit_as_torchrun(tmp_path: Path) -> None:
    """With the launchers that users call."""
    options = ["--nproc-per-node", "2", "--standalone"]
    ours = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", "2", "--run-dir", str(tmp_path / "run")]
    theirs = [sys.executable, "-m", "torch.distributed.run", *options]
    for name, command in (("ours", ours), ("theirs", theirs)):
        done = subprocess.run(
            [*command, str(PROGRAM), "transformer", str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=200,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    for rank in (0, 1):
        assert (tmp_path / f"ours.{rank}").read_text() == (tmp_path / f"theirs.{rank}").read_text()
    was_observed(RunDir(tmp_path / "run"), "transformer", 2)
