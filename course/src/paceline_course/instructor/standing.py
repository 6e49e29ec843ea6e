"""How a class stands, from what was collected: facts only, no words and no drawing."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from paceline.records.errors import PacelineError
from paceline_course.assess.grade import FILE as GRADE_FILE
from paceline_course.assess.grade import Grade, read_grade
from paceline_course.content import Course, Exercise, Lab
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.collect import read_received
from paceline_course.instructor.roster import Person, read_roster
from paceline_course.instructor.walls import Wall, walls_of
from paceline_course.progress import FILE, ExerciseProgress, Progress

STUCK_MIN, STUCK_TRIES = 15, 5
"""More than this many minutes, or failed checks, on one exercise that has not passed."""

_MOST = 9999
"""The file is the learner's own: a number in it may have a thousand digits, which no median can be made of."""
_MESSAGE = re.compile(r"[a-z0-9-]{1,40}")

CellState = Literal["passed", "shown", "trying", "read", "none"]


@dataclass(frozen=True)
class Cell:
    """One learner, one exercise.

    Attributes:
        state: `passed` by themselves; `shown`: passed, or not yet, after the solution was opened; `trying`: checked and
            not passed; `read`: hints only; `none`: not begun.
        passed: whether it has passed.
        tries: checks until it passed, or so far.
        hints: how many were taken.
        minutes: from the first check to the pass, or to when the file was made; None where that is not known.
        message: id of what the last check said.
        went_on: not passed, and another exercise was begun later.
    """

    state: CellState = "none"
    passed: bool = False
    tries: int = 0
    hints: int = 0
    minutes: float | None = None
    message: str = ""
    went_on: bool = False

    @property
    def stuck(self) -> bool:
        """Not passed after many tries, or after a long time with nothing else begun."""
        if self.passed or not self.tries:
            return False
        long = self.minutes is not None and self.minutes > STUCK_MIN and not self.went_on
        return long or self.tries > STUCK_TRIES


@dataclass(frozen=True)
class Learner:
    """One person of the class.

    Attributes:
        person: who.
        progress: what they have done; None where nothing was collected, or it cannot be read.
        cells: by exercise.
        made_at: UTC, when what was collected was made; empty where that is not known.
        trouble: why there is no progress, where something was collected.
        grade: of the assessment, where it was graded.
        handed_in: whether an assessment was.
    """

    person: Person
    progress: Progress | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    made_at: str = ""
    trouble: str = ""
    grade: Grade | None = None
    handed_in: bool = False

    @property
    def solved(self) -> int:
        """Exercises that have passed."""
        return sum(cell.passed for cell in self.cells.values())


@dataclass(frozen=True)
class Sticking:
    """An exercise at which learners are stuck.

    Attributes:
        exercise: which.
        learners: those who are, the most tries first, with their cell.
        message: id of what most of their last checks said; empty where none said anything.
        same: of how many.
    """

    exercise: Exercise
    learners: list[tuple[Learner, Cell]]
    message: str
    same: int


@dataclass(frozen=True)
class LabShare:
    """How far the class is in one lab.

    Attributes:
        lab: which.
        begun: learners who checked one of its exercises, or took its quiz.
        done: learners of whom all exercises passed.
        share: of all exercises of all learners, passed; 0 to 1.
        quizzes: right answers of each learner's best try.
        questions: of the quiz; 0 where nobody took it.
    """

    lab: Lab
    begun: int
    done: int
    share: float
    quizzes: list[int]
    questions: int


@dataclass(frozen=True)
class Standing:
    """All of it.

    Attributes:
        labs: of the track.
        learners: of the roster, and those of whom something was collected without being in it.
        sticking: the exercise with the most stuck learners first.
        shares: one a lab.
        walls: in the order of the labs.
    """

    labs: list[Lab]
    learners: list[Learner]
    sticking: list[Sticking]
    shares: list[LabShare]
    walls: list[Wall]

    @property
    def present(self) -> list[Learner]:
        """Those of whom progress was collected."""
        return [learner for learner in self.learners if learner.progress is not None]

    @property
    def begun_labs(self) -> list[Lab]:
        """Labs with exercises which somebody has begun."""
        return [share.lab for share in self.shares if share.lab.exercises and share.begun]


def look(room: Classroom, course: Course, labs: Sequence[Lab]) -> Standing:
    """Read a class's folder.

    Raises:
        PacelineError: its roster cannot be used.
    """
    people = read_roster(room)
    known = {person.id for person in people}
    people += [Person(name, name) for name in room.handed_in() if name not in known]
    learners = [_learner(room, person, labs) for person in people]
    present = [learner for learner in learners if learner.progress is not None]
    exercises = [exercise for lab in labs for exercise in lab.exercises]
    return Standing(
        labs=list(labs),
        learners=learners,
        sticking=_sticking(exercises, present),
        shares=[_share(lab, present) for lab in labs],
        walls=walls_of([lab.id for lab in labs], [each.progress for each in present if each.progress is not None]),
    )


def _learner(room: Classroom, person: Person, labs: Sequence[Lab]) -> Learner:
    folder = room.of(person.id)
    received = read_received(room, person.id)
    made_at = (received.made_at or received.taken_at) if received is not None else ""
    handed_in = (folder / "assessment" / "train.py").is_file()
    grade, trouble = None, ""
    if (room.graded / person.id / GRADE_FILE).is_file():
        try:
            grade = read_grade(room.graded / person.id)
        except PacelineError as error:
            trouble = error.what
    progress = None
    if (folder / FILE).is_file():
        try:
            progress = read_quietly(folder / FILE)
        except PacelineError as error:
            trouble = error.what
    cells = _cells(progress, labs, made_at) if progress is not None else {}
    return Learner(person, progress, cells, made_at, trouble, grade, handed_in)


def read_quietly(path: Path) -> Progress:
    """Somebody's progress, which is left as it is whatever it holds.

    Raises:
        PacelineError: it cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Progress)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PacelineError(f"{path.parent.name}/{path.name} cannot be read", why=str(error)) from error


def _cells(progress: Progress, labs: Sequence[Lab], made_at: str) -> dict[str, Cell]:
    begun = {name: state.first_at for name, state in progress.exercises.items() if state.first_at}
    found = {}
    for lab in labs:
        for exercise in lab.exercises:
            state = progress.exercises.get(exercise.id)
            if state is None:
                continue
            later = any(at > (state.first_at or "") for name, at in begun.items() if name != exercise.id)
            found[exercise.id] = _cell(state, made_at, later=later)
    return found


def _cell(state: ExerciseProgress, made_at: str, *, later: bool) -> Cell:
    passed = state.passed_at is not None
    tries = min(max(state.attempts, 0), _MOST)
    kind: CellState
    if state.solution_seen:
        kind = "shown"
    elif passed:
        kind = "passed"
    else:
        kind = "trying" if tries else "read" if state.hints > 0 else "none"
    return Cell(
        state=kind,
        passed=passed,
        tries=min(max(1, state.attempts_to_pass or 1), _MOST) if passed else tries,
        hints=min(max(state.hints, 0), 3),
        minutes=_minutes(state.first_at, state.passed_at or made_at),
        # The file is the learner's own: what is no id is not shown.
        message=state.last_message if not passed and _MESSAGE.fullmatch(state.last_message) else "",
        went_on=not passed and later,
    )


def _minutes(first: str | None, last: str | None) -> float | None:
    """Between two moments; None where one is not known, or they are the wrong way round."""
    try:
        begin, end = (datetime.datetime.fromisoformat(text or "") for text in (first, last))
        minutes = (end - begin).total_seconds() / 60
    except (ValueError, TypeError):  # of which one has a time zone and the other has none
        return None
    return minutes if minutes >= 0 else None


def _sticking(exercises: Sequence[Exercise], learners: Sequence[Learner]) -> list[Sticking]:
    found = []
    for exercise in exercises:
        cells = [(learner, learner.cells[exercise.id]) for learner in learners if exercise.id in learner.cells]
        stuck = sorted((each for each in cells if each[1].stuck), key=lambda each: -each[1].tries)
        if stuck:
            messages = Counter(cell.message for _, cell in stuck if cell.message)
            message, same = messages.most_common(1)[0] if messages else ("", 0)
            found.append(Sticking(exercise, stuck, message, same))
    return sorted(found, key=lambda each: -len(each.learners))


def _share(lab: Lab, learners: Sequence[Learner]) -> LabShare:
    begun = done = passed = 0
    quizzes, questions = [], 0
    for learner in learners:
        cells = [learner.cells[each.id] for each in lab.exercises if each.id in learner.cells]
        quiz = learner.progress.quizzes.get(lab.id) if learner.progress is not None else None
        if quiz is not None and quiz.tries > 0:
            asked = min(max(quiz.questions, 0), _MOST)
            questions = max(questions, asked)
            quizzes.append(min(max(quiz.best, 0), asked))
        begun += any(cell.state != "none" for cell in cells) or quiz is not None
        solved = sum(cell.passed for cell in cells)
        passed += solved
        done += bool(lab.exercises) and solved == len(lab.exercises)
    every = len(learners) * len(lab.exercises)
    return LabShare(lab, begun, done, passed / every if every else 0.0, quizzes, questions)
