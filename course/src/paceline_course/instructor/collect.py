"""Take what learners sent into the class's folder: matched to the roster, the newest kept, older ones put aside."""

from __future__ import annotations

import datetime
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import make_dirs
from paceline_course.assess.text import visible
from paceline_course.instructor.archive import (
    LETTER,
    PARTS,
    Refused,
    Taken,
    from_folder,
    from_zip,
    read_plain,
    write_files,
)
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.hand_in import Letter, digest_of
from paceline_course.instructor.matching import whose
from paceline_course.instructor.roster import Person, read_roster
from paceline_course.progress import FILE, SCHEMA, Progress
from paceline_course.progress import now as utc_now

RECEIVED = "received.json"
_MOST_PROGRESS, _MOST_LETTER, _MOST_DONE = 8 << 20, 4096, 10**8 - 1
_COPY = re.compile(r"\s*\(\d+\)$")
"""What browsers append to a second download; it is nobody's id."""
_NO_NAME = {"progress", "hand-in", "handin", "paceline-course", "course", "assessment", ""}

State = Literal["taken", "same", "older", "refused"]


class Received(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`received.json`: where a learner's files came from."""

    source: str
    """Its name, without the folders above it."""
    digest: str
    taken_at: str
    made_at: str = ""
    """UTC, when it was packed, or its progress last written; empty where nothing tells."""
    age: list[str] = []
    """How new it is: compared with others of the same learner."""


@dataclass(frozen=True)
class Result:
    """What became of one source.

    Attributes:
        source: its path.
        state: `taken`; `same`: it was there already; `older`: put aside, a newer one is there; `refused`.
        learner: id, where one was found.
        said: what, or why, in words.
    """

    source: Path
    state: State
    learner: str = ""
    said: str = ""


def collect(room: Classroom, sources: Sequence[Path], learner: str | None = None) -> Iterator[Result]:
    """Take every source, one after the other; one that is refused does not stop the others.

    Args:
        room: the class.
        sources: progress.json files, course folders, zips, or folders that hold such.
        learner: whose they are; by their names otherwise.

    Raises:
        PacelineError: nobody is in the class by that id, or one learner cannot have sent several.
    """
    people = read_roster(room)
    if learner is not None:
        learner = _named(people, learner)
    elif not people:
        raise PacelineError(
            f"{room.path} has no roster", hint="paceline learn instructor roster FOLDER import people.csv; or --as ID"
        )
    found = [each for source in sources for each in _expanded(source)]
    if learner is not None and len(found) > 1:
        raise PacelineError(f"--as {learner} names one learner, and there are {len(found)} files")
    for source in found:
        try:
            yield _take(room, people, source, learner)
        except Refused as error:
            yield Result(source, "refused", said=str(error))


def _named(people: Sequence[Person], learner: str) -> str:
    if not people:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", learner) is None:
            raise PacelineError(f"{learner} is no id", hint="letters, digits, dots and dashes")
        return learner
    for person in people:
        if person.id.casefold() == learner.casefold():
            return person.id
    raise PacelineError(f"nobody has the id {learner}", hint="paceline learn instructor roster FOLDER shows all")


def _expanded(source: Path) -> Iterator[Path]:
    """A source, or what a folder of several holds."""
    if not source.exists() and not source.is_symlink():
        raise PacelineError(f"there is no {source}")
    if not source.is_dir() or _is_course(source):
        yield source
        return
    try:
        inside = _inside(source)
    except OSError as error:
        raise PacelineError(f"{source} cannot be read", why=error.strerror or str(error)) from error
    for each in inside:
        if each.is_dir() and not each.is_symlink() and not _is_course(each):
            # As a learning platform lays it out: a folder a learner, what they sent in it.
            try:
                yield from (one for one in _inside(each) if _may_be(one, deep=True))
            except OSError:
                yield each  # which is refused, and why
        elif _may_be(each):
            yield each


def _inside(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if not each.name.startswith("."))


def _may_be(path: Path, *, deep: bool = False) -> bool:
    """Whether it looks like something that somebody sent; deeper, other JSON files than a progress are passed over."""
    suffix = path.suffix.lower()
    known = suffix == ".zip" or (suffix == ".json" and (not deep or path.stem.lower().startswith("progress")))
    return known or _is_course(path)


def _is_course(path: Path) -> bool:
    try:
        return path.is_dir() and ((path / FILE).is_file() or (path / "assessment" / "train.py").is_file())
    except OSError:  # a folder that may not be looked into
        return False


def _take(room: Classroom, people: Sequence[Person], source: Path, learner: str | None) -> Result:
    taken = _read(source)
    progress = _progress(taken)
    letter = _letter(taken)
    if learner is None:
        learner = whose(people, _names(source, letter))
    made_at = letter.made_at if letter else taken.newest.isoformat(timespec="seconds") if taken.newest else ""
    taken_at = utc_now()
    received = Received(
        source=visible(source.name, single=True),
        digest=digest_of(taken.files),
        taken_at=taken_at,
        made_at=made_at,
        # Where no time is known, what comes later is taken for newer.
        age=[_last_done(progress), f"{_done(progress):08d}", made_at or taken_at],
    )
    held = read_received(room, learner)
    if held is not None and FILE not in taken.files:  # an assessment alone is as new as what is there
        received = msgspec.structs.replace(received, age=[*held.age[:2], made_at or taken_at])
    if held is not None and held.digest == received.digest:
        return Result(source, "same", learner, "the same is there already")
    if held is not None and received.age < held.age:
        _keep_aside(room, learner, taken, received)
        said = f"older than what is there ({held.source}); put aside"
        if filled := _fill(room, learner, taken):
            said += f", but {' and '.join(filled)} taken, of which there was nothing"
        return Result(source, "older", learner, said)
    _put(room, learner, taken, received)
    return Result(source, "taken", learner, _what(taken) + (f"; not taken: {_few(taken.left)}" if taken.left else ""))


def _read(source: Path) -> Taken:
    if source.is_symlink():
        raise Refused("it is a link")
    try:
        return _content(source)
    except OSError as error:
        raise Refused(f"it cannot be read ({error.strerror or error})") from error


def _content(source: Path) -> Taken:
    if source.is_dir():
        return from_folder(source)
    if not source.is_file():
        raise Refused("it is no ordinary file")
    if source.suffix.lower() == ".zip":
        return from_zip(source)
    if source.suffix.lower() != ".json":
        raise Refused("it is neither a zip, nor a progress.json, nor a course folder")
    found = read_plain(source, _MOST_PROGRESS)
    if found is None:
        raise Refused("it is larger than any progress.json")
    taken = Taken()
    taken.add(FILE, *found)
    return taken


def _progress(taken: Taken) -> Progress:
    """The progress in it; an empty one where there is an assessment alone."""
    if FILE not in taken.files:
        if "assessment/train.py" not in taken.files:
            raise Refused(f"it has neither {FILE} nor assessment/train.py")
        return Progress()
    if len(taken.files[FILE]) > _MOST_PROGRESS:
        raise Refused(f"its {FILE} is larger than any")
    try:
        found = msgspec.json.decode(taken.files[FILE], type=Progress)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"its {FILE} is damaged ({error})") from error
    if found.schema > SCHEMA:
        raise Refused(f"its {FILE} was written by a later version of the course")
    return found


def _letter(taken: Taken) -> Letter | None:
    if LETTER not in taken.files or len(taken.files[LETTER]) > _MOST_LETTER:
        return None
    try:
        return msgspec.json.decode(taken.files[LETTER], type=Letter)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _names(source: Path, letter: Letter | None) -> list[str]:
    """What may say whose it is, the best first."""
    found = [letter.learner] if letter is not None and letter.learner else []
    own = _COPY.sub("", source.stem if source.is_file() else source.name)
    for name in (own, source.resolve().parent.name):
        if name.casefold() not in _NO_NAME and name not in found:
            found.append(name)
    return found


def read_received(room: Classroom, learner: str) -> Received | None:
    """What is known of a learner's files; None where there are none."""
    path = room.of(learner) / RECEIVED
    try:
        return msgspec.json.decode(path.read_bytes(), type=Received)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _put(room: Classroom, learner: str, taken: Taken, received: Received) -> None:
    """Make it the learner's newest; what it has no part of is kept from before."""
    room.make()
    make_dirs(room.collected)
    target = room.of(learner)
    staged = Path(tempfile.mkdtemp(prefix=".incoming-", dir=room.collected))
    try:
        staged.chmod(room.collected.stat().st_mode & 0o777)  # as any folder here; a temporary one is for its owner
        write_files(taken.files, staged)
        for part in PARTS:
            if part != LETTER and not (staged / part).exists() and (target / part).exists():
                copy = shutil.copytree if (target / part).is_dir() else shutil.copyfile
                copy(target / part, staged / part)
        (staged / RECEIVED).write_bytes(msgspec.json.format(msgspec.json.encode(received), indent=1))
        if target.exists():
            aside = _free(room, learner)
            target.rename(aside)
        staged.rename(target)
    except OSError as error:
        raise PacelineError(f"{target} cannot be written", why=error.strerror or str(error)) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _keep_aside(room: Classroom, learner: str, taken: Taken, received: Received) -> None:
    if any(each.digest == received.digest for each in _aside(room, learner)):
        return
    folder = _free(room, learner)
    write_files(taken.files, folder)
    (folder / RECEIVED).write_bytes(msgspec.json.format(msgspec.json.encode(received), indent=1))


def _fill(room: Classroom, learner: str, taken: Taken) -> list[str]:
    """Take the parts of which a learner has nothing yet; their names."""
    missing = [part for part in PARTS if part != LETTER and not (room.of(learner) / part).exists()]
    chosen = {name: content for name, content in taken.files.items() if name.partition("/")[0] in missing}
    write_files(chosen, room.of(learner))
    return sorted({name.partition("/")[0] for name in chosen})


def _aside(room: Classroom, learner: str) -> Iterator[Received]:
    for path in sorted((room.older / learner).glob(f"*/{RECEIVED}")):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Received)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue


def _free(room: Classroom, learner: str) -> Path:
    """A place for what is put aside."""
    make_dirs(room.older / learner)
    stem = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d_%H-%M-%S")
    number = 0
    while (path := room.older / learner / (stem if not number else f"{stem}-{number + 1}")).exists():
        number += 1
    return path


def _last_done(progress: Progress) -> str:
    """The latest time that a progress tells of; empty for none."""
    times = [progress.started_at or ""]
    for exercise in progress.exercises.values():
        times += [exercise.first_at or "", exercise.passed_at or ""]
    times += [quiz.last_at or "" for quiz in progress.quizzes.values()]
    for prediction in progress.predictions.values():
        times += [prediction.at, prediction.measured_at or ""]
    return max(times)


def _done(progress: Progress) -> int:
    """How much was tried: it only grows, also where no time is noted."""
    tried = sum(max(0, each.attempts) + max(0, each.hints) for each in progress.exercises.values())
    tried += sum(max(0, quiz.tries) for quiz in progress.quizzes.values())
    return min(tried, _MOST_DONE)  # of eight digits: it is compared as text


def _what(taken: Taken) -> str:
    answers = sum(name.startswith("work/") for name in taken.files)
    parts = ["progress"] if FILE in taken.files else []
    parts += [f"{answers} files of answers"] if answers else []
    parts += ["assessment"] if "assessment/train.py" in taken.files else []
    return ", ".join(parts)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
