"""What a learner sends: one zip with progress, answers and the assessment, made where the course folder is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline_course import progress
from paceline_course.instructor.archive import LETTER, MOST_BYTES, Refused, from_folder
from paceline_course.instructor.handout import pack
from paceline_course.workspace import Workspace


class Letter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`hand-in.json`, what the zip says of itself."""

    schema: int = 1
    made_at: str
    """UTC, ISO 8601."""
    course: str = ""
    learner: str = ""
    """An id or a name, when the learner gave one."""


@dataclass(frozen=True)
class HandIn:
    """What was made.

    Attributes:
        path: of the zip.
        files: in it.
        size: in bytes.
        assessment: whether it holds one.
        left: files that were not taken: links, those that are too large, what is neither code nor text, and names
            that not every machine can write.
    """

    path: Path
    files: int
    size: int
    assessment: bool
    left: list[str]


def make_hand_in(workspace: Workspace, out: Path, learner: str = "") -> HandIn:
    """Write the zip.

    Args:
        workspace: the learner's folder.
        out: the file.
        learner: an id or a name, for whoever collects; may be empty.

    Raises:
        PacelineError: the folder holds more than a hand-in may, or a file of it cannot be read.
    """
    try:
        taken = from_folder(workspace.path)
    except OSError as error:
        raise PacelineError(
            f"{error.filename or workspace.path} cannot be read", why=error.strerror or str(error)
        ) from error
    except Refused as error:
        raise PacelineError(
            f"{workspace.path} cannot be handed in",
            why=str(error),
            hint=f"move what is large out of assessment/runs; {MOST_BYTES >> 20} MiB at most",
        ) from error
    letter = Letter(made_at=progress.now(), course=workspace.course.version, learner=learner)
    packed = pack(taken.files | {LETTER: msgspec.json.format(msgspec.json.encode(letter), indent=1)})
    write_atomic(out, packed)
    assessment = any(name.startswith("assessment/") for name in taken.files)
    return HandIn(out, len(taken.files), len(packed), assessment, taken.left)


def digest_of(files: Mapping[str, bytes]) -> str:
    """sha256 of what a hand-in holds; when it was packed does not count."""
    digest = hashlib.sha256()
    for name in sorted(files):
        if name != LETTER:
            digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return digest.hexdigest()
