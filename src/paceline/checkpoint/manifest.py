"""Checkpoints as directories that are either complete or ignored.

    checkpoints/step-00001200/   model.safetensors, state.pt, manifest.json (sizes, sha256)

A checkpoint is written aside, each file is brought to the disk, the manifest is written last, and the directory is
renamed into place. A reader takes a checkpoint only if the manifest is there and every file is what it says.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import fsync_dir, make_dirs, write_error

MANIFEST = "manifest.json"
SCHEMA = 1
_NAME = re.compile(r"step-(\d{8,})")
_ASIDE = ".aside-"


class FileEntry(msgspec.Struct, frozen=True):
    """One file of a checkpoint."""

    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json."""

    schema: int
    step: int
    world: int
    task: str
    files: dict[str, FileEntry]


@dataclass(frozen=True)
class Passed:
    """A checkpoint that cannot be used, and why."""

    path: Path
    reason: str


def directory_name(step: int) -> str:
    """`step-00001200`; sorts by step."""
    return f"step-{step:08d}"


def write(checkpoints: Path, step: int, world: int, task: str, contents: Mapping[str, bytes | memoryview]) -> int:
    """Write one complete checkpoint, replacing one of the same step; return its size in bytes.

    Raises:
        PacelineError: it could not be written; nothing of it is left, and the older ones are untouched.
    """
    make_dirs(checkpoints)
    aside = checkpoints / f"{_ASIDE}{directory_name(step)}-{os.getpid()}"
    final = checkpoints / directory_name(step)
    try:
        aside.mkdir()
        files = {name: _write_file(aside / name, content) for name, content in contents.items()}
        manifest = Manifest(schema=SCHEMA, step=step, world=world, task=task, files=files)
        _write_file(aside / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        fsync_dir(aside)
        if final.exists():  # a damaged one that was passed over, or the same step done again
            old = checkpoints / f"{_ASIDE}old-{directory_name(step)}-{os.getpid()}"
            final.rename(old)
            try:
                aside.rename(final)
            except OSError:
                old.rename(final)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            aside.rename(final)
        fsync_dir(checkpoints)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise write_error(final, error) from error
    return sum(entry.size_bytes for entry in files.values())


def _write_file(path: Path, content: bytes | memoryview) -> FileEntry:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def steps_newest_first(checkpoints: Path) -> Iterator[tuple[int, Path]]:
    """All checkpoint directories, complete or not."""
    try:
        entries = list(checkpoints.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    found = [(int(match[1]), path) for path in entries if (match := _NAME.fullmatch(path.name)) and path.is_dir()]
    yield from sorted(found, reverse=True)


@dataclass(frozen=True)
class Standing:
    """A checkpoint on disk whose files are there, of the size that its manifest says."""

    step: int
    path: Path
    size_bytes: int


def standing(checkpoints: Path) -> list[Standing]:
    """Checkpoints that stand on disk, the newest first. Cheap: contents are compared when one is loaded."""
    found = []
    for step, path in steps_newest_first(checkpoints):
        if damage(path, contents=False) is None:
            size = sum(entry.size_bytes for entry in read_manifest(path).files.values())
            found.append(Standing(step, path, size))
    return found


def damage(path: Path, *, contents: bool = True) -> str | None:
    """Why the checkpoint at `path` cannot be used; None when all is as its manifest says.

    Args:
        path: its directory.
        contents: compare every byte; else only which files are there, and their sizes.
    """
    try:
        raw = (path / MANIFEST).read_bytes()
    except OSError:
        return "it has no manifest, so it was never finished"
    try:
        head = msgspec.json.decode(raw)
        if isinstance(head, dict) and isinstance(head.get("schema"), int) and head["schema"] > SCHEMA:
            return f"it has schema {head['schema']}, written by a newer Paceline"
        manifest = msgspec.convert(head, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"its manifest is damaged ({error})"
    for name, entry in manifest.files.items():
        file = path / name
        try:
            size = file.stat().st_size
            if size != entry.size_bytes:
                return f"{name} has {size:,} bytes instead of {entry.size_bytes:,}"
            if not contents:
                continue
            with file.open("rb") as handle:
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError as error:
            return f"{name} cannot be read ({error.strerror or error})"
        if digest != entry.sha256:
            return f"{name} is not what was written (sha256 differs)"
    return None


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint that `damage` found complete."""
    return msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)


def newest_complete(checkpoints: Path) -> tuple[Path | None, list[Passed]]:
    """The newest checkpoint that can be used, and the newer ones that were passed over."""
    passed: list[Passed] = []
    for _, path in steps_newest_first(checkpoints):
        reason = damage(path)
        if reason is None:
            return path, passed
        passed.append(Passed(path, reason))
    return None, passed


def prune(checkpoints: Path, keep: int, newest: int) -> None:
    """Remove all but the `keep` newest checkpoints up to step `newest`, the one that was just written.

    Those of later steps are damaged, since the run was resumed from an older one: they must not take the place of a
    good one. They stay until the run writes their step again. The manifest goes first, so that a checkpoint whose
    removal is interrupted is not taken for a complete one.
    """
    paths = [path for step, path in steps_newest_first(checkpoints) if step <= newest]
    for path in paths[keep:]:
        with contextlib.suppress(OSError):
            (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def clear_aside(checkpoints: Path) -> None:
    """Remove what killed runs had begun to write. Call it only while holding the run's lock."""
    for path in checkpoints.glob(f"{_ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


def require(path: Path) -> Manifest:
    """The manifest of a checkpoint that the user named.

    Raises:
        PacelineError: it is not complete.
    """
    reason = damage(path)
    if reason is not None:
        raise PacelineError(
            f"the checkpoint {path} cannot be used", why=reason, hint="--resume auto takes an older one"
        )
    return read_manifest(path)
