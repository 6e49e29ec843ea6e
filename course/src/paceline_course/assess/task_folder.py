"""The learner's folder of the assessment: made once, and what the grader keeps in it."""

from __future__ import annotations

import datetime
import secrets
import shutil
from pathlib import Path

import msgspec

from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import write_atomic
from paceline_course.assess.planted import planted
from paceline_course.assess.rubric import content_folder

DEFAULT = "assessment"
STATE = "assessment.json"
NOTEBOOK = "assessment.ipynb"
_DAY = datetime.timedelta(days=1)


class FolderState(msgspec.Struct, kw_only=True):
    """assessment.json: what belongs to this folder and no other."""

    schema: int = 1
    hang_seed: int
    """Of what hang.txt shows."""
    finals: list[str] = []
    """When final gradings were begun; UTC, ISO 8601."""


def start(folder: Path) -> list[Path]:
    """Make the folder, or what is missing in it; what was made. Nothing that is there is overwritten.

    Raises:
        PacelineError: something else is there, or nothing can be written there.
    """
    try:
        return _made(folder)
    except OSError as error:
        raise PacelineError(
            f"{folder} cannot be made",
            why=error.strerror or str(error),
            hint="name a folder that you may write to",
            exit_code=Exit.CANNOT_WRITE,
        ) from error


def _made(folder: Path) -> list[Path]:
    if folder.exists() and not folder.is_dir():
        raise PacelineError(f"{folder} is a file", hint="name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / STATE).exists():
        raise PacelineError(f"{folder} holds something else", hint="name an empty folder, or a new one")
    notebook = None if (folder / NOTEBOOK).exists() else notebook_text()
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    if not (folder / STATE).exists():
        write_state(folder, FolderState(hang_seed=secrets.randbelow(2**31)))
        made.append(folder / STATE)
    state = read_state(folder)
    for source in _given():
        target = folder / source.relative_to(content_folder() / "kit")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            made.append(target)
    hang = folder / "hang.txt"
    if not hang.exists():
        write_atomic(hang, planted(state.hang_seed).text.encode())
        made.append(hang)
    if notebook is not None:
        write_atomic(folder / NOTEBOOK, notebook.encode())
        made.append(folder / NOTEBOOK)
    return made


def notebook_text() -> str:
    """The notebook that leads through the assessment, as its file has it.

    Raises:
        PacelineError: the libraries of the course are not installed.
    """
    from paceline_course.content import Lab
    from paceline_course.masters import read_master
    from paceline_course.notebooks import build

    lab = Lab(id=DEFAULT, slug=DEFAULT, title="The assessment", goal="", minutes=0, machine_s=0)
    return build(lab, read_master(content_folder() / "notebook.py"))


def _given() -> list[Path]:
    kit = content_folder() / "kit"
    return [path for path in sorted(kit.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def read_state(folder: Path) -> FolderState:
    """What belongs to the folder.

    Raises:
        PacelineError: it is missing or damaged.
    """
    path = folder / STATE
    try:
        return msgspec.json.decode(path.read_bytes(), type=FolderState)
    except FileNotFoundError as error:
        raise PacelineError(f"{folder} is no folder of the assessment", hint="paceline learn assess start") from error
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PacelineError(
            f"{path} cannot be read",
            why=str(error),
            hint="paceline learn assess start in a new folder, and copy your files",
        ) from error


def write_state(folder: Path, state: FolderState) -> None:
    """Write it whole or not at all."""
    write_atomic(folder / STATE, msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")


def hang_seed(content: bytes | None) -> int | None:
    """Of hang.txt, from the content of assessment.json; None where that cannot be read."""
    try:
        return None if content is None else msgspec.json.decode(content, type=FolderState).hang_seed
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def begin_final(folder: Path, most: int) -> None:
    """Note that a final grading begins.

    Raises:
        PacelineError: there were as many in the last 24 hours as a day may have.
    """
    state = read_state(folder)
    now = datetime.datetime.now(datetime.UTC)
    # Also of a clock that was set back since; but a time far ahead is none, and must not close the folder until then.
    recent = [each for each in map(_moment, state.finals) if each is not None and abs(now - each) < _DAY]
    if len(recent) >= most:
        again = min(recent) + _DAY
        raise PacelineError(
            f"{most} final gradings were made in the last 24 hours",
            hint=f"the next one from {again:%H:%M} UTC on; --practice has no limit",
        )
    state.finals = [*state.finals, now.isoformat(timespec="seconds")]
    write_state(folder, state)


def _moment(text: str) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
