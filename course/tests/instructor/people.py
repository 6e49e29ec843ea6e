"""A class that never was: names in many scripts, each on a path of their own, the same for the same seed."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import msgspec

from paceline_course.content import Course, Lab
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.collect import RECEIVED, Received
from paceline_course.instructor.roster import Person, write_roster
from paceline_course.progress import ExerciseProgress, Prediction, Progress, QuizProgress

NAMES = (
    "Anna Berger", "王小明", "Жанна Ли", "محمد الفاتح", "Søren Ågård", "O'Neil, Pat", "<b>Bold</b> & Co", "नेहा शर्मा",
    "Nguyễn Thị Minh Khai", "김민수", "Zoë \"Zed\" Müller", "אברהם כהן", "Łukasz Żółć", "ประเสริฐ สุข", "A" * 60,
    "Ευγενία Παπα", "=SUM(A1:A9)", "José María de la Cruz", "ルイス 健", "Bo",
)  # fmt: skip
PREDICTED = {
    "L1.4:variance_of_4_times_the_batch": (0.25, "times"),
    "L2.1:batch_256_over_batch_8": (2.1, "times"),
    "L5.4:steps_with_averaged_gradients": (10.0, "of 10"),
    "L7.3:wall": (64.0, "workers"),
}
MESSAGES = ("todo", "sum-not-mean", "hang", "no-such-message")
BEGAN = datetime.datetime(2027, 3, 1, 8, 0, tzinfo=datetime.UTC)


def learner(number: int, labs: list[Lab], seed: int = 7) -> tuple[Progress, str]:
    """One learner's progress, and when they handed it in."""
    draw = random.Random(f"{seed} {number}")
    clock = BEGAN + datetime.timedelta(seconds=draw.randrange(600))
    pace, skill = draw.uniform(0.6, 1.7), draw.uniform(0.3, 0.95)
    until = BEGAN + datetime.timedelta(hours=draw.choice([2, 4, 6, 8]))
    made = Progress(started_at=_text(clock), course="1.0")
    for lab in labs:
        for exercise in lab.exercises:
            if clock > until:
                return made, _text(until + datetime.timedelta(minutes=draw.randrange(40)))
            first = clock
            clock += datetime.timedelta(minutes=exercise.minutes * pace * draw.uniform(0.4, 1.6))
            made.exercises[exercise.id] = _state(draw, skill, first, clock)
        for name, (truth, unit) in PREDICTED.items():
            if name.partition(".")[0] == lab.id and draw.random() < 0.8:
                said = truth * 2 ** draw.gauss(0.3, 1.2)
                measured = truth * draw.uniform(0.95, 1.05) if draw.random() < 0.8 else None
                made.predictions[name] = Prediction(
                    expected=round(said, 2), at=_text(clock), unit=unit, measured=measured
                )
        if draw.random() < 0.7:
            right = sum(draw.random() < skill for _ in range(5))
            made.quizzes[lab.id] = QuizProgress(tries=1, best=right, questions=5, last_at=_text(clock))
    return made, _text(clock)


def _state(draw: random.Random, skill: float, first: datetime.datetime, last: datetime.datetime) -> ExerciseProgress:
    tries = 1
    while draw.random() > skill and tries < 9:
        tries += 1
    hints = min(3, max(0, tries - 2)) if draw.random() < 0.6 else 0
    if draw.random() < 0.12 * (1.3 - skill) * tries:
        message = draw.choice(MESSAGES)
        return ExerciseProgress(attempts=tries, hints=hints, first_at=_text(first), last_message=message)
    return ExerciseProgress(
        attempts=tries,
        attempts_to_pass=tries,
        passed_at=_text(last),
        first_at=_text(first),
        hints=hints,
        solution_seen=hints == 3 and draw.random() < 0.5,
    )


def _text(moment: datetime.datetime) -> str:
    return moment.isoformat(timespec="seconds")


def make_class(path: Path, course: Course, labs: list[Lab], count: int = 20, absent: int = 2) -> Classroom:
    """A class's folder with what `count` learners handed in, and so many of whom there is nothing."""
    room = Classroom(path)
    room.make()
    people = [
        Person(f"p{number + 1:03d}", NAMES[number % len(NAMES)] + (f" {number}" if number >= len(NAMES) else ""))
        for number in range(count)
    ]
    write_roster(room, people)
    for number, person in enumerate(people[: max(0, count - absent)]):
        progress, made_at = learner(number, labs)
        folder = room.of(person.id)
        folder.mkdir(parents=True)
        (folder / "progress.json").write_bytes(msgspec.json.encode(progress))
        received = Received(source=f"{person.id}.zip", digest=person.id, taken_at=made_at, made_at=made_at)
        (folder / RECEIVED).write_bytes(msgspec.json.encode(received))
    return room
