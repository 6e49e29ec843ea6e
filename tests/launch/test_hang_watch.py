"""A pause is a hang only if it is long for its job, and no rank may just be slow."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from paceline.audits.hang import hang_event
from paceline.launch import hang_watch
from paceline.launch.hang_watch import HangWatch, RankSeen, Rhythm, is_due
from paceline.records.launched import HangOver, HangSeen
from paceline.records.ring import Progress
from paceline.records.standing import RankStanding

EVERY_S = 0.25


class Job:
    """Two ranks whose rings are read every 0.25 s, in time that tests make.

    Attributes:
        rhythm: that follows them.
        alarms: times at which a pause was longer than its patience.
    """

    def __init__(self) -> None:
        self.rhythm, self.alarms = Rhythm(10.0), list[float]()
        self._now, self._counts = 1000.0, {"steps": 0, "batches": 0, "entered": 0}
        self._feed()

    def passes(self, seconds: float) -> None:
        """Nothing advances for so long."""
        end = self._now + seconds
        while self._now < end:
            self._now += EVERY_S
            self._feed()

    def advances(self, count: int, every_s: float, what: str = "steps") -> None:
        """So many steps, batches or collectives."""
        for _ in range(count):
            self.passes(every_s)
            self._counts[what] += 1
            self._feed()

    def _feed(self) -> None:
        ranks = {rank: Progress(samples=0, at_s=0.0, pid=rank + 1, **self._counts) for rank in range(2)}
        self.rhythm.feed(self._now, ranks)
        if self._now - self.rhythm.moved_s > self.rhythm.patience_s:
            self.alarms.append(self._now)


def test_a_pause_of_ten_seconds_is_suspected_where_steps_are_short() -> None:
    """And none before."""
    job = Job()
    job.advances(100, 0.5)
    job.passes(9.5)
    assert job.alarms == []

    job.passes(1.0)

    assert job.alarms != []


def test_a_slow_first_step_is_not_suspected() -> None:
    """Half a minute; later ones are short."""
    job = Job()
    job.advances(1, 29.0)
    job.advances(50, 0.5)

    assert job.alarms == []


def test_steps_that_vary_tenfold_are_not_suspected() -> None:
    """Four seconds, and now and then forty."""
    job = Job()
    for _ in range(20):
        job.advances(10, 4.0)
        job.advances(1, 40.0)

    assert job.alarms == []


def test_an_evaluation_that_takes_batches_is_not_suspected() -> None:
    """A minute without a step."""
    job = Job()
    job.advances(100, 0.25)
    job.advances(120, 0.5, "batches")

    assert job.alarms == []


def test_a_pause_that_the_job_went_on_from_is_not_suspected_again() -> None:
    """A checkpoint that takes a quarter longer the next time."""
    job = Job()
    job.advances(100, 0.5)
    job.passes(40.0)
    job.advances(1, 0.5)
    first = len(job.alarms)
    for _ in range(5):
        job.advances(100, 0.5)
        job.passes(50.0)

    assert first > 0
    assert len(job.alarms) == first


def test_a_launcher_that_was_away_suspects_nothing_at_once() -> None:
    """Ctrl-Z stops launcher and ranks."""
    job = Job()
    job.advances(100, 0.5)
    job._now += 600.0
    job._feed()

    assert job.alarms == []


def test_a_job_that_was_started_again_begins_anew() -> None:
    """Its first step may be slow again."""
    rhythm = Rhythm(10.0)
    for step in range(10):
        rhythm.feed(step / 2, {0: Progress(steps=step, samples=0, at_s=0.0, pid=1)})
    assert rhythm.patience_s == 10.0

    rhythm.feed(6.0, {0: Progress(steps=0, samples=0, at_s=0.0, pid=2)})

    assert rhythm.patience_s == 30.0


def seen(rank: int, call: str = "", state: str = "waits", *, busy: bool = False, working: bool = False) -> RankSeen:
    """A rank in a call, or at a line of its own."""
    return RankSeen(RankStanding(rank=rank, state=state, call=call), busy, working)


@pytest.fixture
def regular() -> Rhythm:
    """Of a job with short steps."""
    job = Job()
    job.advances(20, 0.5)
    return job.rhythm


WAITS = seen(0, "backward")


def test_a_rank_that_waits_or_loops_without_end_is_reported_at_once(regular: Rhythm) -> None:
    """The other one waits for it."""
    assert is_due([WAITS, seen(1)], [1], 10.0, regular)
    assert is_due([WAITS, seen(1, state="runs", busy=True)], [1], 10.0, regular)


def test_a_rank_that_evaluates_or_saves_gets_a_minute(regular: Rhythm) -> None:
    """It computes with torch, writes files or moves data while the other one waits."""
    slow = [WAITS, seen(1, state="runs", busy=True, working=True)]

    assert not is_due(slow, [1], 59.0, regular)
    assert is_due(slow, [1], 60.0, regular)


def test_ranks_that_all_compute_get_a_minute(regular: Rhythm) -> None:
    """No one waits: it may be one slow step."""
    both = [seen(rank, state="runs", busy=True) for rank in range(2)]

    assert not is_due(both, [0, 1], 59.0, regular)
    assert is_due(both, [0, 1], 60.0, regular)


def test_before_the_third_step_a_job_that_uses_the_processor_is_never_reported() -> None:
    """It compiles, or reads its data."""
    early = Rhythm(10.0)

    assert not is_due([WAITS, seen(1, busy=True)], [1], 3600.0, early)
    assert is_due([WAITS, seen(1)], [1], 30.0, early)


def test_work_after_the_training_is_no_hang(regular: Rhythm) -> None:
    """One rank saves, the others have ended and wait for nothing."""
    assert not is_due([seen(0), seen(1, state="ended")], [0], 3600.0, regular)
    assert is_due([WAITS, seen(1, state="ended")], [1], 10.0, regular)


def test_a_job_that_goes_on_says_so_and_keeps_both_as_events(tmp_path: Path) -> None:
    """The card was shown before."""
    said, written = list[str](), list[object]()
    hang = HangSeen(kind="missing", title="hang", why="", advice="", culprits=[1], ranks=[])
    watch = HangWatch(tmp_path, lambda *_: hang, lambda _: said.append("card"), said.append)
    watch.write = written.append
    watch.started(2)
    watch.progress({0: Progress(steps=5, samples=0, at_s=0.0, pid=1)}, 100.0)
    watch._shown = hang

    watch.progress({0: Progress(steps=6, samples=0, at_s=0.0, pid=1)}, 103.0)

    assert said == ["paceline: the job went on after 3 s without progress"]
    assert written == [HangOver(still_s=3.0)]


COLLECTIVE = """
    import time

    def barrier():
        time.sleep(60)
"""
RANK = """
    import faulthandler, os, sys, time
    from pathlib import Path
    from paceline.records.standing import stack_path, stack_signal
    from torch.distributed.distributed_c10d import barrier

    def prepare():
        time.sleep(60)  # here

    folder, rank = Path(sys.argv[1]), sys.argv[2]
    faulthandler.register(stack_signal(), file=stack_path(folder, os.getpid()).open("w"), all_threads=True, chain=False)
    print("ready", flush=True)
    prepare() if rank == "1" else barrier()
"""


def test_the_stacks_of_ranks_name_the_line_of_the_one_that_is_missing_and_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes answer the signal; the torch that they import is a stand-in, so that they start at once."""
    monkeypatch.setattr(hang_watch, "_BETWEEN_S", 0.2)
    stand_in = tmp_path / "site-packages" / "torch" / "distributed"
    stand_in.mkdir(parents=True)
    for each in (stand_in.parent, stand_in):
        (each / "__init__.py").touch()
    (stand_in / "distributed_c10d.py").write_text(textwrap.dedent(COLLECTIVE))
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(RANK))
    folders = [str(stand_in.parents[1]), *(path for path in sys.path if path)]
    shown: list[HangSeen] = []
    watch = HangWatch(tmp_path, hang_event, shown.append, lambda _: None, least_s=0.2, stop=True)
    watch.started(2)

    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(script), str(tmp_path), str(rank)],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
            for rank in range(2)
        ]
        for each in ranks:
            stack.callback(each.kill)
            assert each.stdout is not None
            assert each.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 20
        for step in itertools.count():
            steps = min(step, 10)
            progress = (Progress(steps=steps, samples=0, at_s=0.0, pid=each.pid) for each in ranks)
            watch.progress(dict(enumerate(progress)))
            if watch.ended is not None or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        codes = [each.wait(timeout=10) for each in ranks]

    assert watch.failed == ""
    (hang,) = shown
    assert (hang.kind, hang.culprits, hang.step) == ("missing", [1], 10)
    assert hang.ranks[0].call == "barrier"
    assert hang.ranks[1].line == next(at for at, text in enumerate(RANK.splitlines(), 1) if "# here" in text)
    assert codes == [-signal.SIGKILL] * 2
