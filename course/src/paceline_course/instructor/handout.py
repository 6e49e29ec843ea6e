"""One zip for a class: the labs as notebooks and as text, starters, and how to begin. No solutions.

The same course gives the same bytes whenever it is made (by the same zlib), so two handouts can be compared by their
digest.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline import __version__
from paceline.records.rundir import write_atomic
from paceline_course.content import Course, Lab
from paceline_course.workspace import Workspace

ROOT = "paceline-course"
_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can tell."""
_FILE_MODE = 0o100644 << 16


@dataclass(frozen=True)
class Handout:
    """What was made.

    Attributes:
        path: of the zip.
        files: in it.
        digest: sha256 of it.
    """

    path: Path
    files: int
    digest: str


def make_handout(course: Course, labs: Sequence[Lab], out: Path, track: str | None = None) -> Handout:
    """Write the zip.

    Args:
        course: whose.
        labs: that are in it.
        out: the file.
        track: named in its README.
    """
    content = {f"{ROOT}/README.md": _readme(course, labs, track).encode()}
    with tempfile.TemporaryDirectory(prefix="paceline-handout-") as folder:
        workspace = Workspace(Path(folder), course)
        for lab in labs:
            for path in workspace.lay_out(lab):
                content[f"{ROOT}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    # With it, the folder is a course folder: commands find it, and `start` takes it for what it is.
    content[f"{ROOT}/progress.json"] = b'{"schema":1}\n'
    packed = pack(content)
    write_atomic(out, packed)
    return Handout(out, len(content), hashlib.sha256(packed).hexdigest())


def pack(content: Mapping[str, bytes]) -> bytes:
    """A zip whose bytes depend on names and contents alone."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as file:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _FILE_MODE
            entry.create_system = 3
            file.writestr(entry, content[name])
    return memory.getvalue()


def _readme(course: Course, labs: Sequence[Lab], track: str | None) -> str:
    named = f" --track {track}" if track is not None else ""
    first = next((exercise.id for lab in labs for exercise in lab.exercises), "L1.1")
    lines = [
        f"# {course.title}",
        "",
        f"The labs of the course, version {course.version}, made with paceline {__version__}. Three commands, in this",
        "folder:",
        "",
        "```",
        "paceline learn doctor                   # does everything work on this machine?",
        f"paceline learn next{named:<21}# the first exercise that is open: its task and its file",
        f"paceline learn check {first:<19}# runs your answer and says what is right and wrong",
        "```",
        "",
        "Each lab is there twice, as a notebook (`jupyter lab`) and as text. Your answers are the files in `work/`;",
        "a notebook's exercise cell writes them as well. `progress.json` says what you have solved, nothing about you.",
        "At the end, `paceline learn hand-in` packs what your teacher asks for.",
        "",
        "| lab | you can say afterwards | minutes |",
        "|---|---|---|",
        *(f"| [{lab.id} · {lab.title}]({lab.text_name}) | {lab.goal} | {lab.minutes} |" for lab in labs),
        "",
    ]
    return "\n".join(lines)
