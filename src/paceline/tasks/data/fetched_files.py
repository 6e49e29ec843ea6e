"""Put files of a data set in place: whole, checked and durable, or not at all.

A fetch holds a lock on the set's folder, writes into a directory of its own beside the final one, and renames when
every file has the right size and checksum. What a killed fetch leaves has another name, and the next one removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import fsync_dir
from paceline.tasks.data.catalog import DataFile, wrong_checksum, wrong_size

SCRATCH_PREFIX = ".paceline-fetch-"
_CHUNK_BYTES = 64 * 1024  # of compressed input: 1,000 times as much comes out at worst, and that still fits in memory
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Progress:
    """One moment of a fetch. Whoever launched it draws it; nothing here does.

    Attributes:
        message: what is going on, as half a sentence without a full stop.
        done_bytes: so many are done, of what `message` names.
        total_bytes: of so many; None when that is not known (waiting, a package being fetched).
    """

    message: str
    done_bytes: int = 0
    total_bytes: int | None = None


Tell = Callable[[Progress], None]


class SourceError(Exception):
    """A place does not have the data, or has something else; its text says why. The next place may have them."""


class Readable(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""
        ...


def write_error(path: Path, error: OSError) -> PacelineError:
    """The message for data that could not be written."""
    # A scratch directory's name says nothing to the user; the directory that it stands in does.
    shown = next((above.parent for above in (path, *path.parents) if above.name.startswith(SCRATCH_PREFIX)), path)
    return PacelineError(
        f"cannot write {shown}",
        why=error.strerror or str(error),
        hint="free some space, or choose another directory with --data-dir; files that were there are untouched",
        exit_code=Exit.CANNOT_WRITE,
    )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses within the block becomes the message for `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def plain_chunks(stream: Readable, name: str) -> Iterator[bytes]:
    """The content of `stream`, called `name` in messages, decompressed if it is gzip.

    Raises:
        SourceError: it cannot be read, or its compression is damaged.
    """
    try:
        chunk = stream.read(_CHUNK_BYTES)
        if len(chunk) == 1:  # a network may begin with half of gzip's mark
            chunk += stream.read(_CHUNK_BYTES)
        if not chunk.startswith(_GZIP_MAGIC):
            while chunk:
                yield chunk
                chunk = stream.read(_CHUNK_BYTES)
            return
        unzip = zlib.decompressobj(wbits=31)  # 31: gzip's header and checksum
        while chunk and not unzip.eof:
            yield unzip.decompress(chunk)
            chunk = stream.read(_CHUNK_BYTES)
    except zlib.error as error:
        raise SourceError(f"{name} is damaged: its compression is wrong ({error})") from error
    except OSError as error:
        raise SourceError(f"{name} cannot be read: {error.strerror or error}") from error
    if not unzip.eof:
        raise SourceError(f"{name} is truncated: it ends within its compressed data")


def receive(stream: Readable, file: DataFile, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Write `stream`, decompressed, to the new file `target`, to disk.

    Args:
        on_bytes: called with the number of bytes of each piece that was written.

    Raises:
        SourceError: it is not `file`; what was written is for the caller to remove.
        PacelineError: it cannot be written.
    """
    digest = hashlib.sha256()
    size = 0
    with _open_new(target) as handle:
        for chunk in plain_chunks(stream, file.name):
            size += len(chunk)
            if size > file.size_bytes:
                raise SourceError(f"{file.name} {wrong_size(file, f'more than {file.size_bytes:,}')}")
            digest.update(chunk)
            with writing(target):
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(handle, rest) :]
            on_bytes(len(chunk))
        if size != file.size_bytes:
            raise SourceError(f"{file.name} {wrong_size(file, f'{size:,}')}")
        if digest.hexdigest() != file.sha256:
            raise SourceError(f"{file.name} {wrong_checksum(file, digest.hexdigest())}")
        with writing(target):
            os.fsync(handle)


@contextlib.contextmanager
def _open_new(target: Path) -> Iterator[int]:
    with writing(target):
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        yield handle
    finally:
        os.close(handle)


def put_in_place(scratch: Path, raw: Path, files: list[DataFile]) -> None:
    """Move checked files from `scratch` to their final names; each appears whole.

    Raises:
        PacelineError: they cannot be moved.
    """
    try:
        with writing(raw):
            raw.mkdir(parents=True, exist_ok=True)
            for file in files:
                (scratch / file.name).replace(raw / file.name)
            fsync_dir(raw)
    except PacelineError:
        with contextlib.suppress(OSError):
            raw.rmdir()  # succeeds only if it is empty
        raise


@contextlib.contextmanager
def scratch_dir(folder: Path) -> Iterator[Path]:
    """A new directory in `folder` that is removed at the end, whatever happened."""
    with writing(folder):
        path = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
