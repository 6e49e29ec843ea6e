"""What a rank writes into its ring is what the launcher reads, however either of them is interrupted."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.records.ring import Kind, RingReader, RingWriter, pack_batch, ring_path, unpack_batch

PREFIX = 5
"""Bytes before each payload: its length and its kind."""
READ = -1
"""In a list of sizes: the reader reads here."""


@contextlib.contextmanager
def ring(capacity: int) -> Iterator[tuple[RingWriter, RingReader]]:
    """Both ends of a ring."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RingWriter(Path(folder), 3, 2, capacity)
        reader = RingReader(ring_path(Path(folder), 3, 2))
        try:
            yield writer, reader
        finally:
            reader.close()
            writer.close()


def content(number: int, size: int) -> bytes:
    """A payload that no other number has."""
    return (number.to_bytes(4, "little") * (size // 4 + 1))[:size]


@settings(max_examples=100)
@given(st.integers(PREFIX + 1, 90), st.lists(st.one_of(st.just(READ), st.integers(0, 60)), max_size=60), st.booleans())
def test_any_interleaving_of_writes_and_reads_gives_what_had_room_in_order(capacity, steps, batches) -> None:
    """A queue that holds at most `capacity` bytes is the reference: it says what is dropped and what is read."""
    kind = Kind.BATCH if batches else Kind.EVENT
    queue: deque[bytes] = deque()
    dropped = 0
    with ring(capacity) as (writer, reader):
        for number, step in enumerate([*steps, READ]):
            if step == READ:
                assert reader.read() == [(kind, each) for each in queue]
                queue.clear()
                continue
            payload = content(number, step)
            has_room = sum(PREFIX + len(each) for each in [*queue, payload]) <= capacity
            assert writer.write(payload, kind) is has_room
            dropped += not has_room
            if has_room:
                queue.append(payload)
        assert (writer.dropped, reader.dropped) == (dropped, dropped)


def test_records_wrap_around_the_end_of_the_data() -> None:
    """Ten times the capacity goes through, with records that lie across the end."""
    with ring(64) as (writer, reader):
        for number in range(40):
            payload = content(number, 17)

            assert writer.write(payload)

            assert reader.read() == [(Kind.EVENT, payload)]


def test_a_full_ring_drops_and_counts_and_works_again_once_it_was_read() -> None:
    """Nothing that was accepted is overwritten; the count of what was lost stays."""
    with ring(100) as (writer, reader):
        accepted = [writer.write(content(number, 20)) for number in range(6)]

        assert accepted == [True] * 4 + [False] * 2
        assert [payload for _, payload in reader.read()] == [content(number, 20) for number in range(4)]
        assert writer.write(content(9, 20))
        assert [payload for _, payload in reader.read()] == [content(9, 20)]
        assert reader.dropped == 2


def test_two_processes_cannot_have_one_ring(tmp_path: Path) -> None:
    """The second one is refused and the first one's records stay; another attempt and a spawned rank have their own."""
    first = RingWriter(tmp_path, 0, 1, 64)
    first.write(b"kept")
    again = "import sys; from pathlib import Path; from paceline.records.ring import RingWriter; "

    second = subprocess.run(
        [sys.executable, "-c", again + "RingWriter(Path(sys.argv[1]), 0, 1, 64)", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert second.returncode == 1
    assert "FileExistsError" in second.stderr
    assert RingReader(ring_path(tmp_path, 0, 1)).read() == [(Kind.EVENT, b"kept")]
    RingWriter(tmp_path, 0, 2, 64)
    RingWriter(tmp_path, 0, 1, 64, spawned=True)
    assert len(list(tmp_path.glob("*.ring"))) == 3


KILLED = """
import os, signal, sys
from pathlib import Path
from paceline.records.ring import BATCHES, ENDED, ENTERED, LEFT, RingWriter
ring = RingWriter(Path(sys.argv[1]), 0)
for number in range(1000):
    ring.write(str(number).encode())
ring.beat(41, 82)
ring.counters[ENTERED], ring.counters[LEFT], ring.counters[BATCHES], ring.counters[ENDED] = 7, 6, 5, 1
os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_all_that_was_written_is_read_after_the_writer_was_killed(tmp_path: Path, number: signal.Signals) -> None:
    """The pages belong to the kernel: nothing was flushed, closed or waited for."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(int(number))], timeout=60, cwd=tmp_path, check=False
    )

    reader = RingReader(ring_path(tmp_path, 0, 1))

    assert killed.returncode == -number
    assert [int(payload) for _, payload in reader.read()] == list(range(1000))
    assert reader.progress[:2] == (41, 82)
    progress = reader.progress
    assert progress.at_s > 0
    assert (progress.entered, progress.left, progress.batches, progress.ended) == (7, 6, 5, True)


@pytest.mark.parametrize("size", [0, 5, 127, 128, 4096])
def test_a_file_that_is_no_ring_yet_is_refused(tmp_path: Path, size: int) -> None:
    """As one whose rank was killed while it made it."""
    path = tmp_path / "1-00000.ring"
    path.write_bytes(bytes(size))

    with pytest.raises(ValueError):
        RingReader(path)


def test_a_ring_that_does_not_fit_is_refused_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no room, the error comes when the ring is made, and not as SIGBUS at a later write."""
    allocated = []

    def full(handle: int, offset: int, size: int) -> None:
        allocated.append((offset, size))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)

    with pytest.raises(OSError, match="No space left"):
        RingWriter(tmp_path, 0, capacity=4096)

    assert allocated == [(0, 128 + 4096)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("at", "value"), [(16, 2**40), (24, 2**40), (128, 2**31), (132, 9)], ids=["written", "read", "length", "kind"]
)
def test_a_damaged_ring_is_an_error_and_no_records(tmp_path: Path, at: int, value: int) -> None:
    """A stray pointer in the rank may write anywhere in the header (words of 8 bytes) or in the data behind it."""
    RingWriter(tmp_path, 0, 1, 64).write(b"x")
    path = ring_path(tmp_path, 0, 1)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(value.to_bytes(8 if at < 128 else 4 if at == 128 else 1, "little"))

    with pytest.raises(ValueError, match="damaged"):
        RingReader(path).read()


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=40))
def test_a_packed_batch_comes_back(loader: int, number: int, batch: int, indices: bytes) -> None:
    """With its loader, its pass and its place in it."""
    assert unpack_batch(pack_batch(loader, number, batch, indices)) == (loader, number, batch, indices)
