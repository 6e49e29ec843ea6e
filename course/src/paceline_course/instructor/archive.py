"""Zips from other people: read with care. One bad entry refuses the whole file, and nothing of it is written.

What could go wrong is refused by what was read, not by what the zip says of itself: sizes are counted while it is
unpacked. Only parts of a hand-in are taken; what else is in a zip is named and left.
"""

from __future__ import annotations

import datetime
import lzma
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from paceline.records.errors import PacelineError
from paceline_course.assess.text import visible
from paceline_course.progress import FILE

LETTER = "hand-in.json"
PARTS = (FILE, LETTER, "work", "assessment")
MOST_FILES, MOST_FILE, MOST_BYTES = 4000, 64 << 20, 256 << 20
_MOST_RATIO, _RATIO_FROM = 300, 8 << 20
"""Text of zeros packs 1000 to 1; logs and programs pack 10 to 1."""
_LONGEST, _LONGEST_NAME, _DEEPEST = 240, 1000, 12
_SUFFIXES = (".py", ".toml", ".csv", ".json", ".jsonl", ".md", ".txt", ".log", ".ipynb")
"""What people write and programs log; checkpoints and data stay where they are."""
_RUBBISH = ("__MACOSX", ".DS_Store", "__pycache__", ".ipynb_checkpoints", "Thumbs.db")


_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, MemoryError, NotImplementedError,
    ValueError,
)  # fmt: skip
"""All that `zipfile` raises where a zip is damaged, by accident or with intent."""


class Refused(Exception):  # noqa: N818  it is said of what somebody sent, and ends nothing
    """What was sent cannot be taken; says why."""


@dataclass
class Taken:
    """The parts of a hand-in.

    Attributes:
        files: content by name, relative to the course folder.
        left: what was there and is no part of a hand-in.
        newest: the latest time of any part, UTC; of a zip it is not known, which has no time zone.
        size: of all files, in bytes.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    newest: datetime.datetime | None = None
    size: int = 0

    def add(self, name: str, content: bytes, at: datetime.datetime | None = None) -> None:
        """One file.

        Raises:
            Refused: it is one too many.
        """
        if len(self.files) >= MOST_FILES:
            raise Refused(f"it has more than {MOST_FILES} files")
        self.size += len(content)
        if self.size > MOST_BYTES:
            raise Refused(f"it holds more than {MOST_BYTES >> 20} MiB")
        self.files[name] = content
        if at is not None:
            self.newest = max(filter(None, (self.newest, at)))


def from_zip(path: Path) -> Taken:
    """The parts of a hand-in in a zip.

    Raises:
        Refused: it is no zip, or one that is not safe to unpack.
    """
    try:
        packed = path.stat().st_size
        if packed > MOST_BYTES:  # before its directory is read, all of which zipfile keeps in memory
            raise Refused(f"it holds more than {MOST_BYTES >> 20} MiB")
        with zipfile.ZipFile(path) as file:
            return _unpacked(file, packed)
    except _DAMAGED as error:
        raise Refused(f"it is no zip that can be read ({visible(str(error), single=True)})") from error
    except RuntimeError as error:  # so zipfile says that a password is needed
        raise Refused(f"it cannot be unpacked ({visible(str(error), single=True)})") from error


def _unpacked(file: zipfile.ZipFile, packed: int) -> Taken:
    entries = file.infolist()
    if len(entries) > 2 * MOST_FILES:
        raise Refused(f"it has more than {2 * MOST_FILES} entries")
    names = {entry.filename: _safe(entry) for entry in entries}
    files = [entry for entry in entries if not entry.is_dir() and not _rubbish(names[entry.filename])]
    folded = {_folded(names[entry.filename]) for entry in files}
    if len(folded) < len(files):
        raise Refused("it has a file twice")
    if any(_folded(above) in folded for entry in files for above in names[entry.filename].parents):
        raise Refused("it has a file and a folder of the same name")
    top = _top([names[entry.filename] for entry in files])
    taken = Taken()
    for entry in files:
        path = names[entry.filename]
        inside = path.relative_to(top) if path.is_relative_to(top) else None
        if inside is None or not _is_part(inside):
            taken.left.append(str(inside or path))
            continue
        taken.add(str(inside), b"".join(_chunks(file, entry)))
        if taken.size > _RATIO_FROM and taken.size > _MOST_RATIO * packed:
            raise Refused("it unpacks to far more than any real file (a zip bomb)")
    return taken


def _chunks(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    read = 0
    with file.open(entry) as stream:
        while chunk := stream.read(1 << 20):
            read += len(chunk)
            if read > MOST_FILE:
                raise Refused(f"{entry.filename[:80]} is larger than {MOST_FILE >> 20} MiB")
            yield chunk


def _safe(entry: zipfile.ZipInfo) -> PurePosixPath:
    """The name of an entry, when it can only mean a place inside."""
    name = entry.filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    path = PurePosixPath(name)
    if kind and not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise Refused(f"{name[:80]!r} is a link or another thing that is no file")
    if not name or path.is_absolute() or "\\" in name or ":" in name or ".." in path.parts:
        raise Refused(f"{name[:80]!r} points outside of it")
    if not _writable(path):
        raise Refused(f"{name[:40]!r} is no name that every machine can write")
    if not path.parts and not entry.is_dir():  # some programs pack the folder itself, as ./
        raise Refused("an entry has no name")
    return path


def _writable(path: PurePosixPath) -> bool:
    name = str(path)
    short = all(len(part.encode(errors="replace")) <= _LONGEST for part in path.parts)
    return (
        name.isprintable()
        and short
        and len(name.encode(errors="replace")) <= _LONGEST_NAME
        and (len(path.parts) <= _DEEPEST)
    )


def _is_part(path: PurePosixPath) -> bool:
    """Whether a file of that name belongs to a hand-in: FILE and LETTER are files, the other parts are folders."""
    return path.parts[0] in PARTS and (len(path.parts) == 1) == (path.parts[0] in (FILE, LETTER))


def _folded(path: PurePosixPath) -> str:
    """One name for all that some file systems take for the same."""
    return unicodedata.normalize("NFC", str(path)).casefold()


def _rubbish(path: PurePosixPath) -> bool:
    return any(part in _RUBBISH for part in path.parts)


def _top(files: list[PurePosixPath]) -> PurePosixPath:
    """The folder inside the zip that is the course folder: its top, or one folder in which all stands."""
    if any(path.parts[0] in PARTS for path in files):
        return PurePosixPath()
    tops = {path.parts[0] for path in files if len(path.parts) > 1 and path.parts[1] in PARTS}
    if len(tops) != 1:
        raise Refused(f"it has neither {FILE} nor assessment/" if not tops else "it holds several course folders")
    return PurePosixPath(tops.pop())


def from_folder(folder: Path) -> Taken:
    """The parts of a hand-in in a course folder; links, and files that are neither text nor code, are left.

    Raises:
        Refused: it is larger than a hand-in may be.
        OSError: a part of it cannot be read.
    """
    taken = Taken()
    seen: set[str] = set()
    for part in PARTS:
        for path in _files(folder / part):
            name = PurePosixPath(path.relative_to(folder).as_posix())
            if _rubbish(name) or name.parts[:2] == ("assessment", "graded"):
                continue
            # By the rules for zips: what is packed here must not be refused where it is unpacked.
            fits = _writable(name) and not {"\\", ":"} & set(str(name)) and _is_part(name)
            fits = fits and path.suffix.lower() in _SUFFIXES and _folded(name) not in seen
            found = read_plain(path, MOST_FILE) if fits else None
            if found is None:
                taken.left.append(visible(str(name), single=True))
                continue
            seen.add(_folded(name))
            taken.add(str(name), *found)
    return taken


def _files(path: Path, deep: int = 1) -> Iterator[Path]:
    """All that is no folder below a path, and folders that are nested too deep to be gone through."""
    if path.is_symlink() or not path.is_dir() or deep > _DEEPEST:
        if path.is_symlink() or path.exists():
            yield path
    else:
        for each in sorted(path.iterdir()):
            yield from _files(each, deep + 1)


def read_plain(path: Path, most: int) -> tuple[bytes, datetime.datetime | None] | None:
    """Content and time, UTC, of an ordinary file; None where it is a link, a pipe or a device, or has more bytes.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_symlink() or not path.is_file():
        return None
    # Its owner may put something else in its place meanwhile: no link is followed then, and no pipe waited for.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        content = file.read(most + 1) if stat.S_ISREG(about.st_mode) else None
    if content is None or len(content) > most:
        return None
    try:
        return content, datetime.datetime.fromtimestamp(about.st_mtime, datetime.UTC)
    except (ValueError, OverflowError, OSError):  # a time that no calendar has
        return content, None


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the parts below a folder that is new.

    Raises:
        PacelineError: it cannot be written.
    """
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise PacelineError(f"{folder} cannot be written", why=error.strerror or str(error)) from error
