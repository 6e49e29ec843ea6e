"""The learner's folder: notebooks, one plain file an exercise in `work/`, `progress.json`.

What the learner wrote is never overwritten: a file that differs from its starter stays, and `reset` keeps a copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline_course import notebooks, progress
from paceline_course.content import Course, Exercise, Lab
from paceline_course.files import code_of, compose
from paceline_course.masters import HINTS, Material, material, read_master
from paceline_course.outcome import Outcome

DEFAULT = Path("paceline-course")


@dataclass(frozen=True)
class Workspace:
    """A learner's folder and the course it is for.

    Attributes:
        path: the folder.
        course: the course.
    """

    path: Path
    course: Course

    @property
    def work(self) -> Path:
        """Where exercise files are."""
        return self.path / "work"

    @property
    def progress_file(self) -> Path:
        """progress.json."""
        return self.path / progress.FILE

    def file(self, exercise: Exercise) -> Path:
        """The learner's file for it."""
        return self.work / exercise.file_name

    def material(self, exercise: Exercise) -> Material:
        """Its task, starter, hints and solution.

        Raises:
            PacelineError: the master of its lab lacks it.
        """
        lab = self.course.lab_of(exercise)
        found = material(read_master(self.course.lab_folder(lab) / "lab.py")).get(exercise.id)
        if found is None:
            raise PacelineError(f"the master of {lab.id} has no exercise {exercise.id}", hint="please report it")
        return found

    def starter(self, exercise: Exercise) -> str:
        """What its file holds in the beginning."""
        parts = self.material(exercise)
        return compose(exercise, parts.task, parts.starter)

    def lay_out(self, lab: Lab) -> list[Path]:
        """Make the files of a lab that are not there yet; what was made.

        A notebook that is there stays, too: it is the learner's, with what they wrote in it.
        """
        made = []
        notebook, text = self.path / lab.notebook_name, self.path / lab.text_name
        for path, build in ((notebook, notebooks.build), (text, notebooks.text)):
            if not path.exists():
                cells = read_master(self.course.lab_folder(lab) / "lab.py")
                write_atomic(path, build(lab, cells).encode())
                made.append(path)
        for exercise in lab.exercises:
            if not self.file(exercise).exists():
                write_atomic(self.file(exercise), self.starter(exercise).encode())
                made.append(self.file(exercise))
        return made

    def reset(self, exercise: Exercise) -> Path | None:
        """Bring the starter back; where the learner's version went, None when there was nothing to keep."""
        path, kept = self.file(exercise), None
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != self.starter(exercise):
            kept = _free(path)
            path.rename(kept)
        write_atomic(path, self.starter(exercise).encode())
        return kept

    def untouched(self, exercise: Exercise) -> bool:
        """Whether its file still has the starter's code, or is missing."""
        path = self.file(exercise)
        if not path.exists():
            return True
        return code_of(path.read_text(encoding="utf-8", errors="replace")) == code_of(self.starter(exercise))

    def write_from_notebook(self, exercise: Exercise, code: str, *, overwrite: bool = False) -> bool:
        """Put a notebook cell into the exercise's file, unless that was changed elsewhere meanwhile.

        Returns:
            Whether the file now holds the cell's code.
        """
        path = self.file(exercise)
        held = code_of(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else None
        with self.progress() as known:
            state = known.of(exercise.id)
            ours = held is None or self.untouched(exercise) or _digest(held) == state.in_notebook
            if held == code_of(code):
                state.in_notebook = _digest(held)
                return True
            if not ours and not overwrite:
                return False
            write_atomic(path, compose(exercise, self.material(exercise).task, code_of(code)).encode())
            state.in_notebook = _digest(code_of(code))
        return True

    @contextmanager
    def progress(self) -> Iterator[progress.Progress]:
        """The learner's progress, to be changed."""
        with progress.changing(self.progress_file, self.course.version) as (found, _):
            yield found

    def record(self, outcome: Outcome) -> None:
        """Note a check in the progress."""
        with self.progress() as known:
            state = known.of(outcome.exercise)
            state.attempts += 1
            state.first_at = state.first_at or progress.now()
            failed = outcome.failed
            state.last_message = failed.message if failed is not None else ""
            if outcome.passed and state.passed_at is None:
                state.passed_at, state.attempts_to_pass = progress.now(), state.attempts

    def record_quiz(self, lab: Lab, right: int, questions: int) -> None:
        """Keep the best try."""
        with self.progress() as known:
            state = known.quizzes.setdefault(lab.id, progress.QuizProgress())
            state.tries += 1
            state.best, state.questions = max(state.best, right), questions
            state.last_at = progress.now()

    def next_hint(self, exercise: Exercise) -> tuple[int, str]:
        """The next of the three hints and its number; the last one again when all were given."""
        hints = self.material(exercise).hints
        with self.progress() as known:
            state = known.of(exercise.id)
            state.hints = min(state.hints + 1, HINTS)
            return state.hints, hints[state.hints - 1]

    def solution(self, exercise: Exercise) -> tuple[str, str] | None:
        """Code and explanation, once it was passed or all hints were given; None before."""
        with self.progress() as known:
            state = known.of(exercise.id)
            if state.passed_at is None and state.hints < HINTS:
                return None
            state.solution_seen = state.solution_seen or state.passed_at is None
        parts = self.material(exercise)
        return parts.solution, parts.explanation


def find_workspace(course: Course, path: Path | None = None) -> Workspace:
    """The learner's folder: the one named, else the one that we are in or in front of.

    Raises:
        PacelineError: there is none.
    """
    here = Path.cwd()
    for folder in (path,) if path is not None else (here, *here.parents, here / DEFAULT):
        if folder is not None and (folder / progress.FILE).is_file():
            return Workspace(folder.resolve(), course)
    where = path or here
    raise PacelineError(f"{where} is no course folder", hint="paceline learn start makes one; --dir names one")


def start_workspace(course: Course, path: Path) -> Workspace:
    """The learner's folder, begun when it is new.

    Raises:
        PacelineError: something else is there.
    """
    if path.exists() and not path.is_dir():
        raise PacelineError(f"{path} is a file", hint="--dir names a folder")
    if path.is_dir() and any(path.iterdir()) and not (path / progress.FILE).is_file():
        raise PacelineError(f"{path} holds something else", hint="--dir names an empty folder, or a new one")
    workspace = Workspace(path.resolve(), course)
    with workspace.progress():
        pass
    return workspace


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _free(path: Path) -> Path:
    number = 1
    while (free := path.with_name(f"{path.stem}.before-reset-{number}{path.suffix}")).exists():
        number += 1
    return free
