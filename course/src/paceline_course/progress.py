"""How far a learner has come: one file, `progress.json`, which may be copied to another machine and merged there.

It holds attempts, hints, times, predictions and answers, and nothing about the person. It is the learner's own file: it
proves nothing to anybody else. Where it cannot be read it is put aside, not thrown away.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic

SCHEMA = 1
FILE = "progress.json"


class ExerciseProgress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One exercise."""

    attempts: int = 0
    """Checks, those that passed included."""
    passed_at: str | None = None
    """UTC, ISO 8601; the first time."""
    attempts_to_pass: int | None = None
    hints: int = 0
    """How many of the three were asked for."""
    solution_seen: bool = False
    """Before it was passed."""
    first_at: str | None = None
    last_message: str = ""
    """Id of what the last check said; empty when it passed."""
    in_notebook: str = ""
    """Digest of the code that a notebook wrote last, to notice what was changed elsewhere."""


class QuizProgress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The quiz of one lab."""

    tries: int = 0
    best: int = 0
    """Right answers in the best try."""
    questions: int = 0
    last_at: str | None = None


class Prediction(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was expected before an experiment, and what came out."""

    expected: float
    at: str
    unit: str = ""
    measured: float | None = None
    measured_at: str | None = None


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The file."""

    schema: int = SCHEMA
    course: str = ""
    """Version of the course that last wrote it."""
    started_at: str | None = None
    lab: str = ""
    """The lab that was started last, at which `next` begins; empty for the first."""
    exercises: dict[str, ExerciseProgress] = {}
    quizzes: dict[str, QuizProgress] = {}
    predictions: dict[str, Prediction] = {}

    def of(self, exercise: str) -> ExerciseProgress:
        """Of one exercise; begun when it is new."""
        return self.exercises.setdefault(exercise, ExerciseProgress())


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def read(path: Path) -> tuple[Progress, str]:
    """The progress in a file, and what a person should know about it; an empty text when all is well.

    Raises:
        PacelineError: it cannot be read, or is of a later version, which this one would lose parts of.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Progress(started_at=now()), ""
    except OSError as error:
        raise PacelineError(f"{path} cannot be read", why=error.strerror or str(error)) from error
    try:
        found = msgspec.json.decode(content, type=Progress)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        aside = _aside(path)
        note = f"{path} was damaged ({error}); it is now {aside.name}, and a new one was begun"
        return Progress(started_at=now()), note
    if found.schema > SCHEMA:
        raise PacelineError(
            f"{path} was written by a later version of the course", hint="pip install --upgrade paceline"
        )
    return _sound(found), ""


@contextlib.contextmanager
def changing(path: Path, version: str) -> Iterator[tuple[Progress, str]]:
    """Read, let the caller change it, and write it back; a notebook and a terminal do not lose each other's changes.

    Args:
        path: the file; made when it is missing.
        version: of the course.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside it and out of sight: the file itself is replaced at each change.
    with path.with_name(f".{path.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        progress, note = read(path)
        yield progress, note
        progress.course = version
        write_atomic(path, msgspec.json.format(msgspec.json.encode(progress), indent=1) + b"\n")


def merge(one: Progress, other: Progress) -> Progress:
    """What was done on two machines: the first pass, the most attempts and hints, the best quiz of both."""
    merged = msgspec.convert(msgspec.to_builtins(one), Progress)
    merged.started_at = _earlier(one.started_at, other.started_at)
    for name, theirs in other.exercises.items():
        ours = merged.exercises.setdefault(name, ExerciseProgress())
        if theirs.passed_at and (not ours.passed_at or theirs.passed_at < ours.passed_at):
            ours.passed_at, ours.attempts_to_pass = theirs.passed_at, theirs.attempts_to_pass
            ours.solution_seen = theirs.solution_seen
        ours.attempts, ours.hints = max(ours.attempts, theirs.attempts), max(ours.hints, theirs.hints)
        ours.first_at = _earlier(ours.first_at, theirs.first_at)
    for name, quiz in other.quizzes.items():
        mine = merged.quizzes.get(name)
        if mine is None or quiz.best > mine.best:
            merged.quizzes[name] = quiz
    for name, prediction in other.predictions.items():
        held = merged.predictions.get(name)
        if held is None or prediction.at < held.at:  # what was said first is what was predicted
            merged.predictions[name] = prediction
    return merged


def _earlier(one: str | None, other: str | None) -> str | None:
    return min((each for each in (one, other) if each), default=None)


def _sound(progress: Progress) -> Progress:
    """Numbers that somebody wrote by hand and that cannot be: made possible, so that nothing fails on them."""
    for each in progress.exercises.values():
        each.attempts = max(each.attempts, 0)
        each.hints = min(max(each.hints, 0), 3)
    for quiz in progress.quizzes.values():
        quiz.questions = max(quiz.questions, 0)
        quiz.best = min(max(quiz.best, 0), quiz.questions)
    return progress


def _aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    return aside


def plain(progress: Progress) -> dict[str, Any]:
    """For readers that are no people."""
    found: dict[str, Any] = msgspec.to_builtins(progress)
    return found
