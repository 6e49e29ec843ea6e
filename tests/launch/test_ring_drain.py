"""Records move from the rings of ranks to the run directory, whatever becomes of ranks, rings and the disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.launch import ring_drain
from paceline.launch.ring_drain import RingDrain, make_rings_folder, observation_off, observed_environment
from paceline.records.ledger import read_ledger
from paceline.records.reader import EventStream
from paceline.records.ring import AGENT_VARIABLE, RINGS_VARIABLE, Kind, RingWriter, pack_batch, ring_path
from paceline.records.rundir import RunDir


class Follower:
    """Notes what a listener is told."""

    def __init__(self) -> None:
        self.events: list[tuple[int, bytes]] = []
        self.ranks: dict[int, tuple[int, int, float]] = {}

    def event(self, rank, line):
        """An event."""
        self.events.append((rank, line))

    def progress(self, ranks):
        """Where ranks are."""
        self.ranks = ranks


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """Where records go."""
    return RunDir(tmp_path / "run")


@pytest.fixture
def rings() -> Iterator[Path]:
    """A folder for rings, gone after the test also where it fails."""
    folder = make_rings_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def note(text: str, **fields: object) -> bytes:
    """An event as a rank writes it."""
    return json.dumps({"type": "note", "message": text, **fields}).encode()


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def messages(run: RunDir, rank: int) -> list[str]:
    """Of the notes in a rank's file, read as every reader of runs reads them."""
    return [event.message for event in EventStream(run.events(rank))]


def test_events_of_each_rank_become_lines_of_its_own_file_while_it_runs(run: RunDir, rings: Path) -> None:
    """In order, without the rank or the launcher doing anything, and the listener hears the same."""
    follower = Follower()
    drain = RingDrain(rings, run, follower)
    drain.start()
    writers = [RingWriter(rings, rank) for rank in (0, 1)]
    for number in range(50):
        for rank, writer in enumerate(writers):
            writer.write(note(f"{rank} {number}"))
    writers[1].beat(17, 34)

    until(lambda: len(follower.events) == 100 and run.events(1).is_file() and follower.ranks[1][0] == 17)

    for rank in (0, 1):
        assert messages(run, rank) == [f"{rank} {number}" for number in range(50)]
        assert [line for of, line in follower.events if of == rank] == [note(f"{rank} {n}") for n in range(50)]
    assert follower.ranks[0][:2] == (0, 0)
    assert follower.ranks[1][:2] == (17, 34)
    drain.stop()
    assert drain.seen == {0, 1}
    assert drain.trouble == ""


def test_what_a_rank_wrote_last_is_read_by_stop_and_the_folder_is_gone(run: RunDir, rings: Path) -> None:
    """Also that of a rank that was never seen before."""
    drain = RingDrain(rings, run)
    RingWriter(rings, 3).write(note("last words"))

    drain.stop()

    assert messages(run, 3) == ["last words"]
    assert drain.seen == {3}
    assert not rings.exists()


def test_batches_of_indices_become_the_ledger(run: RunDir, rings: Path) -> None:
    """Not lines of the event file."""
    follower = Follower()
    drain = RingDrain(rings, run, follower)
    RingWriter(rings, 1).write(pack_batch(2, 0, 5, array("q", [9, 4]).tobytes()), Kind.BATCH)

    drain.stop()

    ((rank, batch),) = read_ledger(run)
    assert (rank, batch.loader, batch.number, batch.batch, batch.indices) == (1, 2, 0, 5, [9, 4])
    assert not run.events(1).exists()


def test_attempts_of_a_restarted_rank_follow_each_other_in_one_file(run: RunDir, rings: Path) -> None:
    """Each attempt has a ring of its own, whose events carry its number."""
    drain = RingDrain(rings, run)
    for attempt in (1, 2):
        RingWriter(rings, 0, attempt).write(note(f"attempt {attempt}"))

    drain.stop()

    assert messages(run, 0) == ["attempt 1", "attempt 2"]


def test_progress_is_that_of_the_last_attempt(run: RunDir, rings: Path) -> None:
    """A rank that has not started again yet is not reported as far as it was before."""
    follower = Follower()
    drain = RingDrain(rings, run, follower)
    for rank in (0, 1):
        RingWriter(rings, rank).beat(100, 200)
    RingWriter(rings, 0, 2).beat(3, 6)

    drain.stop()

    assert {rank: each[:2] for rank, each in follower.ranks.items()} == {0: (3, 6)}


def test_rings_that_are_torn_or_damaged_do_not_keep_others_from_being_read(run: RunDir, rings: Path) -> None:
    """A rank that was killed while it made its ring, one that has overwritten it, and a healthy one."""
    drain = RingDrain(rings, run)
    (rings / "1-00000.ring").write_bytes(b"")
    (rings / "1-00001.ring").write_bytes(bytes(40))
    (rings / "1-00002.ring").write_bytes(bytes(4096))
    RingWriter(rings, 3).write(note("before the damage"))
    healthy = RingWriter(rings, 4)
    drain.drain()
    with ring_path(rings, 3, 1).open("r+b") as file:
        file.seek(16)
        file.write(b"\xff" * 8)

    healthy.write(note("healthy"))
    drain.drain()
    healthy.write(note("still"))
    drain.stop()

    assert messages(run, 3) == ["before the damage"]
    assert messages(run, 4) == ["healthy", "still"]
    assert "damaged" in drain.notes[3]
    assert drain.seen == {3, 4}


def test_a_full_disk_ends_the_records_and_not_the_job(
    run: RunDir, rings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener goes on hearing of everything, and the drain says why nothing is written."""
    follower = Follower()
    drain = RingDrain(rings, run, follower)

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ring_drain, "_append", full)
    writer = RingWriter(rings, 0)
    for text in ("first", "second"):
        writer.write(note(text))
        drain.drain()
    drain.stop()

    assert "No space left on device" in drain.trouble
    assert [line for _, line in follower.events] == [note("first"), note("second")]
    assert not run.events(0).exists()


def test_a_listener_that_fails_does_not_keep_records_from_being_written(run: RunDir, rings: Path) -> None:
    """A judge may stumble over what nobody foresaw: the run is still recorded, and what failed is said once."""

    class Failing(Follower):
        def event(self, rank, line):
            super().event(rank, line)
            raise RuntimeError("never seen such an event")

    follower = Failing()
    drain = RingDrain(rings, run, follower)
    drain.start()
    writer = RingWriter(rings, 0)
    writer.write(note("first"))
    until(lambda: len(follower.events) == 1)
    writer.write(note("second"))

    drain.stop()

    assert messages(run, 0) == ["first", "second"]
    assert drain.unheard == "RuntimeError: never seen such an event"
    assert len(follower.events) == 1


def test_a_rank_that_never_attached_is_not_among_those_seen_and_its_note_says_why(run: RunDir, rings: Path) -> None:
    """Ranks leave a file beside the rings where the observer could not be attached."""
    drain = RingDrain(rings, run)
    RingWriter(rings, 0)
    (rings / "2.not-observed").write_bytes(b"ImportError: no module \xff")

    drain.stop()

    assert drain.seen == {0}
    assert drain.notes == {2: "ImportError: no module \ufffd"}


def test_records_that_found_no_room_at_the_end_are_reported(run: RunDir, rings: Path) -> None:
    """A rank reports what it lost with its next event; one that has none left cannot."""
    drain = RingDrain(rings, run)
    writer = RingWriter(rings, 0, capacity=64)
    for text in ("kept", "lost", "lost"):
        writer.write(note(text))

    drain.stop()

    assert messages(run, 0) == ["kept"]
    assert drain.notes[0] == "2 records found no room in the ring"


def test_ranks_get_the_bootstrap_folder_before_the_users_own_path(tmp_path: Path) -> None:
    """And nothing of it is in the launcher's environment: it is a copy that is returned."""
    with_path = observed_environment(tmp_path, {"PYTHONPATH": "/mine:/yours"})
    without = observed_environment(tmp_path, {})

    first, *rest = with_path["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file()
    assert rest == ["/mine", "/yours"]
    assert without["PYTHONPATH"] == first
    assert with_path[RINGS_VARIABLE] == str(tmp_path)
    assert with_path[AGENT_VARIABLE] == str(os.getpid())


@pytest.mark.parametrize(("value", "off"), [("0", True), ("1", False), ("", False)])
def test_only_zero_turns_observation_off(value: str, off: bool) -> None:
    """As the manual says."""
    assert observation_off({"PACELINE_OBSERVE": value}) is off
    assert not observation_off({})


def test_a_new_launcher_removes_the_rings_of_one_that_was_killed(monkeypatch, tmp_path: Path) -> None:
    """Those of a process that is gone, and of nobody who still runs."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = tmp_path / f"paceline-rings-{gone.pid}-abc"
    live = tmp_path / f"paceline-rings-{os.getpid()}-abc"
    for folder in (left, live):
        folder.mkdir()
    monkeypatch.setattr(ring_drain, "_SHARED", tmp_path)

    made = make_rings_folder()

    assert not left.exists()
    assert live.exists()
    assert made.parent == tmp_path


def test_a_ring_that_is_made_just_before_the_end_is_read(run: RunDir, rings: Path) -> None:
    """Also when another rank's ring has been read for a while."""
    drain = RingDrain(rings, run)
    RingWriter(rings, 0).write(b'{"type":"note","message":"first"}')
    drain.drain()
    RingWriter(rings, 1).write(b'{"type":"note","message":"late"}')

    drain.stop()

    assert drain.seen == {0, 1}
    assert run.events(1).read_bytes() == b'{"type":"note","message":"late"}\n'
