"""Grade what a class handed in, one assessment after the other; what was graded already is not graded again."""

from __future__ import annotations

import datetime
import hashlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import make_dirs, write_atomic
from paceline_course.assess.grade import FILE, PARTS, Grade, read_grade, write_grade
from paceline_course.assess.text import closed_by, visible
from paceline_course.content import load_course
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.roster import Person, read_roster

DIGEST, FAILED = "handed-in.sha256", "failed.txt"
CERTIFICATE = "certificate.json"
_STOPPED = (int(Exit.INTERRUPTED), int(Exit.TERMINATED))
Grader = Callable[[Path, Path], Grade]
Attest = Callable[[Grade, Person, Path], Path]


@dataclass(frozen=True)
class Graded:
    """What became of one assessment.

    Attributes:
        person: whose.
        state: `graded`, `kept` (the same was graded before), `failed` (the grading itself did).
        grade: None where it failed.
        said: why it failed.
        certificate: where one was made.
    """

    person: Person
    state: Literal["graded", "kept", "failed"]
    grade: Grade | None = None
    said: str = ""
    certificate: Path | None = None


def grade_class(
    room: Classroom, grader: Grader, *, only: str | None = None, again: bool = False, attest: Attest | None = None
) -> Iterator[Graded]:
    """Every collected assessment, in the order of the roster; the failure of one does not stop the others.

    Args:
        room: the class.
        grader: from a folder and a folder for what it writes to a grade.
        only: id of a learner.
        again: also those that were graded already.
        attest: makes a certificate of a grade that passed.

    Raises:
        PacelineError: nothing was handed in.
    """
    people = read_roster(room)
    known = {person.id for person in people}
    people += [Person(name, name) for name in room.handed_in() if name not in known]
    if only is not None and only not in {person.id for person in people}:
        raise PacelineError(f"nobody has the id {only}", hint="paceline learn instructor roster FOLDER shows all")
    chosen = [person for person in people if only in (None, person.id) and submission(room, person.id) is not None]
    if not chosen:
        raise PacelineError(
            f"there is no assessment in {room.collected}" + (f" of {only}" if only else ""),
            hint="learners run paceline learn hand-in; paceline learn instructor collect takes it",
        )
    for person in chosen:
        yield _one(room, person, grader, again=again, attest=attest)


def submission(room: Classroom, learner: str) -> Path | None:
    """The folder that a learner handed in; None where there is none."""
    folder = room.of(learner) / "assessment"
    return folder if (folder / "train.py").is_file() else None


def _one(room: Classroom, person: Person, grader: Grader, *, again: bool, attest: Attest | None) -> Graded:
    folder, out = room.of(person.id) / "assessment", room.graded / person.id
    try:
        digest = digest_of(folder)
        grade = None if again else _held(out, digest)
        state: Literal["graded", "kept"] = "graded" if grade is None else "kept"
        if grade is None:
            _aside(room, person.id)
            make_dirs(out)
            grade = grader(folder, out)
            if not (out / FILE).exists():
                write_grade(grade, out)
            # Last: where the grading was stopped, it is missing, and the next call begins this one anew.
            write_atomic(out / DIGEST, digest.encode())
        certificate = None
        if attest is not None and grade.passed:
            certificate = out / CERTIFICATE
            if not certificate.exists():
                certificate = attest(grade, person, out)
    except PacelineError as error:
        return Graded(person, "failed", said=_shown(error.what + (f" ({error.why})" if error.why else "")))
    except Exception as error:  # noqa: BLE001  a defect that one submission brings out must not cost the others theirs
        return Graded(person, "failed", said=_shown(f"{type(error).__name__}: {error}"))
    return Graded(person, state, grade, certificate=certificate)


def _shown(said: str) -> str:
    """Why a grading failed, on one line; it may quote what a learner wrote."""
    return visible(said, 400, single=True)


def _held(out: Path, digest: str) -> Grade | None:
    """The grade of the same files, where there is one."""
    try:
        if (out / DIGEST).read_text(encoding="utf-8") != digest:
            return None
        return read_grade(out)
    except (OSError, UnicodeDecodeError, PacelineError):
        return None


def _aside(room: Classroom, learner: str) -> None:
    """Put a grade that is replaced, and its certificate, with what else is older."""
    held = room.graded / learner
    if not (held / FILE).exists():
        return
    make_dirs(room.older / learner)
    number = 1
    while (aside := room.older / learner / f"graded-{number}").exists():
        number += 1
    held.rename(aside)


def digest_of(folder: Path) -> str:
    """sha256 of all files of a submission and their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def in_quarantine(folder: Path, out: Path) -> Grade:
    """The course's own grader, in a process that may write into `out` only; minutes.

    Raises:
        PacelineError: the submission cannot be graded, and why; or the grading came to an end without a grade.
        KeyboardInterrupt: it was stopped.
    """
    from paceline_course.sandbox.quarantine import judging_environment, run_quarantined

    failed = out / FAILED
    failed.unlink(missing_ok=True)  # of a grading that was killed before it could be read
    with tempfile.TemporaryDirectory(prefix="paceline-grade-") as scratch:
        words = [sys.executable, "-P", "-m", "paceline_course.instructor.grade_one", str(folder.resolve())]
        code = run_quarantined(
            [*words, str(out.resolve())], Path(scratch) / "s", env=judging_environment(), writes=[out]
        )
    if code in _STOPPED:
        raise KeyboardInterrupt
    if failed.is_file():
        said = failed.read_text(encoding="utf-8", errors="replace")
        failed.unlink()
        raise PacelineError(said)
    if code:
        raise PacelineError(f"the grading ended with {code}", why="what it printed stands above")
    return read_grade(out)


def attesting(key: Path, issuer: str | None) -> Attest:
    """Certificates signed with an instructor's key; the key is read now, so that a wrong one costs nothing.

    Args:
        key: a private key's file.
        issuer: the name that stands on the certificate; that in the key's file by default.

    Raises:
        PacelineError: the key cannot be used, or nobody says whose it is.
    """
    from paceline_course.certificate.canonical import as_file
    from paceline_course.certificate.credential import Holder, issue
    from paceline_course.certificate.keys import read_private
    from paceline_course.certificate.page import as_html
    from paceline_course.certificate.verify import opened

    signer = read_private(key)
    named = (issuer or signer.issuer).strip()
    if not named:
        raise PacelineError(f"{key} does not say whose it is", hint="--issuer 'Name of the issuer'")
    course = load_course()

    def attest(grade: Grade, person: Person, out: Path) -> Path:
        holder = Holder(person.name, "attested", named, course.title)
        raw = as_file(issue(grade, holder, signer, datetime.datetime.now(datetime.UTC)))
        page = as_html(*opened(raw))
        write_atomic(out / "certificate.html", page.encode())
        write_atomic(out / CERTIFICATE, raw)
        return out / CERTIFICATE

    return attest


def summary(results: list[Graded]) -> str:
    """A table of all of them; no newline at the end."""
    from paceline_course.instructor.overview import padded

    width = max(24, *(len(each.person.id) for each in results))
    lines = [f"{padded('learner', width)}  {'result':<8} points  " + "  ".join(f"{letter:>5}" for letter in PARTS)]
    for each in results:
        name = padded(each.person.name, width)
        if each.grade is None:
            lines.append(f"{name}  not graded: {each.said}")
            continue
        parts = "  ".join(f"{each.grade.part(letter)[0]:>5.1f}" for letter in PARTS)
        closed = closed_by(each.grade)
        said = f"{name}  {each.grade.result:<8} {each.grade.points:>6.1f}  {parts}"
        lines.append(said + (f"  closed by {closed}" if closed else ""))
    grades = [each.grade for each in results if each.grade is not None]
    passed = sum(grade.passed for grade in grades)
    return "\n".join([*lines, f"{passed} of {len(results)} passed"])
