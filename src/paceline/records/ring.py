"""The ring through which a rank hands its records to the launcher: layout, writer and reader.

A ring is a file in shared memory. The rank writes, the launcher reads; neither waits for the other. Because the pages
belong to the kernel, what was written survives SIGKILL and SIGABRT of the rank.

Layout: a header of 64-bit words in native byte order (see `_Word`), then `capacity` bytes of data that wrap around.
Each record is its length (4 bytes), its kind (1 byte) and its payload. `WRITTEN` and `READ` count bytes since the start
and only grow. A record becomes visible when `WRITTEN` moves past it, one aligned 8-byte store.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

RINGS_VARIABLE = "PACELINE_RINGS"
"""Folder of the rings, set by the launcher for its ranks."""
AGENT_VARIABLE = "PACELINE_AGENT"
"""Process id of the launcher: only its own children are ranks."""
SPAWNED_VARIABLE = "PACELINE_SPAWNED"
"""Set for processes that torch.multiprocessing starts in a rank: they are observed once they join a process group."""
OBSERVE_VARIABLE = "PACELINE_OBSERVE"
"""Set to 0 by a user who wants plain torchrun."""

CAPACITY = 4 << 20
"""Bytes of data. The launcher reads every 0.25 s, so a rank can write 16 MB/s."""
_MAGIC = int.from_bytes(b"PLRING01", "little")
_HEADER_BYTES = 128
_PREFIX = struct.Struct("=IB")


class Kind(enum.IntEnum):
    """Kinds of payload."""

    EVENT = 0
    """One event as JSON, without the newline."""
    BATCH = 1
    """Sample indices of one batch: see `pack_batch`."""


class Progress(NamedTuple):
    """How far a rank is."""

    steps: int
    """Optimizer steps done."""
    samples: int
    """Received by the training loop of this rank."""
    at_s: float
    """When the rank last reported these two, on the monotonic clock; 0.0 before."""
    entered: int = 0
    """Number of the last collective of the script that it has entered."""
    left: int = 0
    """Collectives that it had called when it last left one; less than `entered` while it is in one."""
    batches: int = 0
    """Received from data loaders, in training and evaluation."""
    ended: bool = False
    """The script has destroyed its process group, or has ended."""
    pid: int = 0


class _Word(enum.IntEnum):
    MAGIC = 0
    CAPACITY = 1
    WRITTEN = 2
    READ = 3
    DROPPED = 4
    RANK = 5
    ATTEMPT = 6
    PID = 7
    STEP = 8
    SAMPLES = 9
    BEAT_NS = 10
    ENTERED = 11
    LEFT = 12
    BATCHES = 13
    ENDED = 14


_STEP, _SAMPLES, _BEAT_NS = int(_Word.STEP), int(_Word.SAMPLES), int(_Word.BEAT_NS)
"""Each step of a training writes these, and members of an enumeration are dear to look up."""
ENTERED, LEFT, BATCHES, ENDED = range(4)
"""Words of `RingWriter.counters`, which probes write without a call; see `Progress`."""


class RingWriter:
    """The rank's end of a ring.

    Args:
        folder: of the rings.
        rank: of this process.
        attempt: which start of the job this is, 1 for the first.
        capacity: bytes of data.
        spawned: the script started this rank itself, below a process that has a ring.

    Attributes:
        dropped: records that found no room.
        counters: words that probes set, each in one aligned 8-byte store.

    Raises:
        FileExistsError: another process has this rank and attempt.
        OSError: the ring cannot be made.
    """

    def __init__(
        self, folder: Path, rank: int, attempt: int = 1, capacity: int = CAPACITY, *, spawned: bool = False
    ) -> None:
        path = ring_path(folder, rank, attempt, spawned=spawned)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Allocated now: a full file system is an error here, and not SIGBUS at a later write.
            os.posix_fallocate(handle, 0, _HEADER_BYTES + capacity)
            self._map = mmap.mmap(handle, _HEADER_BYTES + capacity)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(handle)
        self._words = memoryview(self._map)[:_HEADER_BYTES].cast("Q")
        self.counters = self._words[_Word.ENTERED : _Word.ENDED + 1]
        self._data = memoryview(self._map)[_HEADER_BYTES:]
        self._capacity, self._written = capacity, 0
        self.dropped = 0
        words = self._words
        words[_Word.CAPACITY], words[_Word.RANK], words[_Word.ATTEMPT] = capacity, rank, attempt
        words[_Word.PID] = os.getpid()
        words[_Word.MAGIC] = _MAGIC  # last: from here on the ring is valid

    def write(self, payload: bytes, kind: Kind = Kind.EVENT) -> bool:
        """Add a record; False where there is no room for it."""
        record = _PREFIX.pack(len(payload), kind) + payload
        size = len(record)
        if self._written + size - self._words[_Word.READ] > self._capacity:
            self.dropped += 1
            self._words[_Word.DROPPED] = self.dropped
            return False
        start = self._written % self._capacity
        first = min(size, self._capacity - start)
        self._data[start : start + first] = record[:first]
        if first < size:
            self._data[: size - first] = record[first:]
        self._written += size
        self._words[_Word.WRITTEN] = self._written
        return True

    def beat(self, step: int, samples: int) -> None:
        """Note how far the rank is: steps done, samples used by this rank."""
        words = self._words
        words[_STEP], words[_SAMPLES], words[_BEAT_NS] = step, samples, time.monotonic_ns()

    def close(self) -> None:
        """Unmap the ring. The file stays for the reader."""
        self.counters.release()
        self._words.release()
        self._data.release()
        self._map.close()


class RingReader:
    """The launcher's end of a ring.

    Args:
        path: of a ring.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no ring, or not complete yet.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        if len(self._map) < _HEADER_BYTES:
            self._map.close()
            raise ValueError(f"{path} is no ring")
        self._words = memoryview(self._map)[:_HEADER_BYTES].cast("Q")
        if self._words[_Word.MAGIC] != _MAGIC:
            self._words.release()
            self._map.close()
            raise ValueError(f"{path} is no ring")
        self.path = path
        self.rank, self.attempt = int(self._words[_Word.RANK]), int(self._words[_Word.ATTEMPT])
        self._capacity = int(self._words[_Word.CAPACITY])

    def read(self) -> list[tuple[Kind, bytes]]:
        """Records since the last call, in order.

        Raises:
            ValueError: the rank has overwritten its own ring, as code with a stray pointer does.
        """
        read, written = self._words[_Word.READ], self._words[_Word.WRITTEN]
        if not 0 <= written - read <= self._capacity:
            raise ValueError(f"the ring of rank {self.rank} is damaged: {written - read} bytes in {self._capacity}")
        block = self._bytes(read, written - read)
        records, at = [], 0
        while at + _PREFIX.size <= len(block):
            length, kind = _PREFIX.unpack_from(block, at)
            at += _PREFIX.size
            if at + length > len(block) or kind > max(Kind):
                raise ValueError(f"the ring of rank {self.rank} is damaged: a record of {length} bytes, kind {kind}")
            records.append((Kind(kind), block[at : at + length]))
            at += length
        self._words[_Word.READ] = written
        return records

    @property
    def dropped(self) -> int:
        """Records that the rank could not write because this end was too slow."""
        return int(self._words[_Word.DROPPED])

    @property
    def progress(self) -> Progress:
        """How far the rank is."""
        words = self._words
        return Progress(
            steps=int(words[_Word.STEP]),
            samples=int(words[_Word.SAMPLES]),
            at_s=words[_Word.BEAT_NS] / 1e9,
            entered=int(words[_Word.ENTERED]),
            left=int(words[_Word.LEFT]),
            batches=int(words[_Word.BATCHES]),
            ended=bool(words[_Word.ENDED]),
            pid=int(words[_Word.PID]),
        )

    def close(self) -> None:
        """Unmap the ring."""
        self._words.release()
        self._map.close()

    def _bytes(self, start: int, count: int) -> bytes:
        at = start % self._capacity
        first = min(count, self._capacity - at)
        begin = _HEADER_BYTES + at
        return self._map[begin : begin + first] + self._map[_HEADER_BYTES : _HEADER_BYTES + count - first]


def ring_path(folder: Path, rank: int, attempt: int, *, spawned: bool = False) -> Path:
    """Where the ring of a rank is."""
    return folder / f"{attempt}-{rank:05d}{'-spawned' if spawned else ''}.ring"


_BATCH = struct.Struct("=III")


def pack_batch(loader: int, number: int, batch: int, indices: bytes) -> bytes:
    """The payload of `Kind.BATCH`: the loader, its pass, the batch in it, and the indices as native 64-bit integers."""
    return _BATCH.pack(loader, number, batch) + indices


def unpack_batch(payload: bytes) -> tuple[int, int, int, bytes]:
    """Return the arguments of `pack_batch`."""
    loader, number, batch = _BATCH.unpack_from(payload)
    return loader, number, batch, payload[_BATCH.size :]
