"""A class at a glance: the same facts as one page, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from paceline_course.assess.grade import PARTS
from paceline_course.assess.text import closed_by, columns
from paceline_course.content import Exercise
from paceline_course.instructor.histogram import Histogram, histogram
from paceline_course.instructor.page import render
from paceline_course.instructor.standing import STUCK_MIN, STUCK_TRIES, Cell, Learner, Standing, Sticking
from paceline_course.instructor.walls import Wall

if TYPE_CHECKING:
    from paceline_course.checking import Message

Means = Callable[[Exercise, str], "Message | None"]

_WIDE, _HIGH = 320, 92
_FEW_TRIES, _SOME_TRIES = 1, 3
_NAME = 24
_WORDS = {
    "passed": "passed",
    "shown": "solution opened before it passed",
    "trying": "checked, not passed",
    "read": "hints read, not checked",
    "none": "not begun",
}


def called(learner: Learner, *, anonymous: bool) -> str:
    """The name that is shown."""
    return learner.person.id if anonymous else learner.person.name


def as_text(standing: Standing, means: Means, *, anonymous: bool = False) -> str:
    """For a terminal; no newline at the end."""
    lines = [_first(standing), ""]
    exercises = [each for lab in standing.begun_labs for each in lab.exercises]
    if exercises:
        lines += list(_marks(standing, anonymous=anonymous))
    lines += ["stuck"]
    if not standing.sticking:
        lines.append(f"  nobody: more than {STUCK_MIN} min or {STUCK_TRIES} failed checks on one exercise count")
    for each in standing.sticking:
        names = ", ".join(f"{called(learner, anonymous=anonymous)} ({_since(cell)})" for learner, cell in each.learners)
        lines.append(f"  {each.exercise.id} {each.exercise.title}: {names}")
        lines += [f"    {line}" for line in _says(each, means)]
    lines += ["", "labs"]
    for share in standing.shares:
        quiz = f", quiz {median(share.quizzes):g} of {share.questions} ({len(share.quizzes)})" if share.quizzes else ""
        solved = f"{share.share:>4.0%} solved, " if share.lab.exercises else ""
        lines.append(f"  {share.lab.id:<4} {solved}{share.begun} begun, {share.done} done{quiz}")
    if standing.walls:
        lines += ["", "predictions: smallest, median, largest, and what was measured"]
        lines += [f"  {_wall_line(wall)}" for wall in standing.walls]
    lines += list(_graded(standing, anonymous=anonymous))
    return "\n".join(lines)


def as_page(standing: Standing, means: Means, title: str, *, anonymous: bool = False) -> str:
    """One HTML file that needs nothing else.

    Args:
        standing: the facts.
        means: says what a message means.
        title: of the class.
        anonymous: ids in the place of names.
    """
    return render(
        "overview.html.j2",
        title,
        anonymous=anonymous,
        tiles=list(_tiles(standing)),
        labs=standing.begun_labs,
        later=[lab for lab in standing.labs if lab.exercises and lab not in standing.begun_labs],
        rows=[_row(learner, standing, anonymous=anonymous) for learner in standing.present],
        missing=[called(each, anonymous=anonymous) for each in standing.learners if each.progress is None],
        troubles=[(called(each, anonymous=anonymous), each.trouble) for each in standing.learners if each.trouble],
        sticking=[_sticking(each, means, anonymous=anonymous) for each in standing.sticking],
        stuck_min=STUCK_MIN,
        stuck_tries=STUCK_TRIES,
        shares=standing.shares,
        present=len(standing.present),
        median=median,
        walls=[_wall(wall) for wall in standing.walls],
        parts=list(PARTS.items()),
        closed_by=closed_by,
        graded=[(called(each, anonymous=anonymous), each.grade) for each in standing.learners if each.grade],
        waiting=[
            called(each, anonymous=anonymous) for each in standing.learners if each.handed_in and each.grade is None
        ],
    )


def _first(standing: Standing) -> str:
    present = len(standing.present)
    count = len(standing.learners)
    if not count:
        return "nobody is in the class yet: paceline learn instructor roster FOLDER import people.csv"
    return f"{count} in the class, progress of {present}"


def _tiles(standing: Standing) -> Iterator[dict[str, Any]]:
    present, count = standing.present, len(standing.learners)
    missing = count - len(present)
    yield _tile("Progress collected", f"{len(present)} of {count}", f"{missing} missing" if missing else "of everybody")
    every = sum(len(lab.exercises) for lab in standing.labs)
    if present:
        solved = [learner.solved for learner in present]
        detail = f"of {every}, median; {min(solved)} to {max(solved)}"
        yield _tile("Exercises passed", f"{median(solved):g}", detail)
    stuck = {learner.person.id for each in standing.sticking for learner, _ in each.learners}
    where = f"most at {standing.sticking[0].exercise.id}" if standing.sticking else "nobody"
    yield _tile("Stuck", str(len(stuck)), where)
    grades = [learner.grade for learner in standing.learners if learner.grade is not None]
    handed_in = sum(learner.handed_in for learner in standing.learners)
    if grades or handed_in:
        passed = sum(grade.passed for grade in grades)
        yield _tile("Assessment passed", f"{passed} of {len(grades)}", f"{handed_in} handed in")


def _tile(label: str, value: str, detail: str) -> dict[str, Any]:
    return {"label": label, "value": value, "details": [detail]}


def _row(learner: Learner, standing: Standing, *, anonymous: bool) -> dict[str, Any]:
    cells = [
        [_shown(learner.cells.get(exercise.id, Cell()), exercise) for exercise in lab.exercises]
        for lab in standing.begun_labs
    ]
    return {"name": called(learner, anonymous=anonymous), "solved": learner.solved, "cells": cells}


def _shown(cell: Cell, exercise: Exercise) -> dict[str, str]:
    """Class, text and full words of one field of the heat map."""
    look = {"shown": "shown", "read": "read", "none": "none"}.get(cell.state, "trying")
    if cell.stuck:
        look = "stuck"
    elif cell.state == "passed":
        look = "first" if cell.tries <= _FEW_TRIES else "some" if cell.tries <= _SOME_TRIES else "many"
    return {"look": look, "text": _mark(cell), "hints": "·" * cell.hints, "title": f"{exercise.id}: {_words(cell)}"}


def _mark(cell: Cell) -> str:
    if cell.state == "none":
        return ""
    if cell.state == "shown":
        return "s"
    return f"{min(cell.tries, 99)}" if cell.passed else f"{min(cell.tries, 99)}×"


def _words(cell: Cell) -> str:
    parts = [_WORDS[cell.state]]
    if cell.passed:
        parts.append(f"at check {cell.tries}")
    elif cell.tries:
        parts.append(f"{cell.tries} check{'' if cell.tries == 1 else 's'}")
    if cell.hints:
        parts.append(f"{cell.hints} hint{'' if cell.hints == 1 else 's'}")
    if cell.minutes is not None and not cell.went_on:
        parts.append(duration(cell.minutes))
    if cell.went_on:
        parts.append("went on with another")
    if cell.message:
        parts.append(cell.message)
    return ", ".join(parts)


def duration(minutes: float) -> str:
    """Minutes, hours or days, as one says it."""
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} days"


def _since(cell: Cell) -> str:
    tries = f"{cell.tries} check{'' if cell.tries == 1 else 's'}"
    if cell.went_on:
        return f"{tries}, went on"
    return tries if cell.minutes is None else f"{tries}, {duration(cell.minutes)}"


def _says(sticking: Sticking, means: Means) -> list[str]:
    """The most frequent message, in words."""
    if not sticking.message:
        return []
    meaning = means(sticking.exercise, sticking.message)
    said = f"{sticking.message} ({sticking.same} of {len(sticking.learners)})"
    if meaning is None:
        return [said]
    return [f"{said}: {meaning.likely}", f"look at: {meaning.look}"]


def _sticking(sticking: Sticking, means: Means, *, anonymous: bool) -> dict[str, Any]:
    return {
        "id": sticking.exercise.id,
        "title": sticking.exercise.title,
        "learners": [(called(each, anonymous=anonymous), _since(cell)) for each, cell in sticking.learners],
        "says": _says(sticking, means),
    }


def _wall_line(wall: Wall) -> str:
    unit = f" {wall.unit}" if wall.unit else ""
    outcome = f"{wall.outcome:.3g}" if wall.outcome is not None else "nothing yet"
    values = wall.expected
    said = f"{min(values):.3g}, {median(values):.3g}, {max(values):.3g}" if values else "no number"
    return f"{wall.key} {wall.name.replace('_', ' ')}: {said}{unit}; measured {outcome} ({len(values)})"


def _wall(wall: Wall) -> dict[str, Any]:
    """One prediction, ready to be drawn."""
    frame = histogram(wall.expected, wall.outcome)
    return {
        "key": wall.key,
        "name": wall.name.replace("_", " "),
        "unit": wall.unit,
        "count": len(wall.expected),
        "unusable": wall.unusable,
        "line": _wall_line(wall),
        "outcome": f"{wall.outcome:.3g}" if wall.outcome is not None else "",
        "drawn": _drawn(frame, wall.outcome) if frame is not None else None,
    }


def _drawn(frame: Histogram, outcome: float | None) -> dict[str, Any]:
    """Bars and a line in a box of 320 x 92."""
    step = _WIDE / len(frame.counts)
    most = max(frame.counts)
    bars = [
        {"x": at * step + 1, "w": step - 2, "h": count / most * _HIGH, "y": _HIGH - count / most * _HIGH, "n": count}
        for at, count in enumerate(frame.counts)
        if count
    ]
    at = frame.place(outcome) * _WIDE if outcome is not None else None
    return {"bars": bars, "at": at, "low": f"{frame.low:.3g}", "high": f"{frame.high:.3g}", "log": frame.log}


def _marks(standing: Standing, *, anonymous: bool) -> Iterator[str]:
    """A line a learner, a sign an exercise: the heat map without colours."""
    labs = standing.begun_labs
    width = min(_NAME, max(columns(called(each, anonymous=anonymous)) for each in standing.present))
    yield f"{'':<{width}}  " + "  ".join(f"{lab.id:<{len(lab.exercises)}}" for lab in labs)
    for learner in standing.present:
        parts = []
        for lab in labs:
            marks = "".join(_sign(learner.cells.get(exercise.id, Cell())) for exercise in lab.exercises)
            parts.append(f"{marks:<{len(lab.id)}}")
        yield f"{padded(called(learner, anonymous=anonymous), width)}  " + "  ".join(parts)
    yield "digit: passed at that check (+ from 10 on); s solution opened; x not passed; ! stuck; h hints only"
    yield ""


def _sign(cell: Cell) -> str:
    if cell.stuck:
        return "!"
    if cell.state == "passed":
        return str(cell.tries) if cell.tries < 10 else "+"
    return {"shown": "s", "trying": "x", "read": "h"}.get(cell.state, ".")


def _graded(standing: Standing, *, anonymous: bool) -> Iterator[str]:
    graded = [learner for learner in standing.learners if learner.grade is not None]
    if not graded:
        return
    yield ""
    yield "assessment"
    for learner in graded:
        if learner.grade is not None:
            name = padded(called(learner, anonymous=anonymous), _NAME)
            closed = closed_by(learner.grade)
            said = f"  {name}  {learner.grade.result:<7} {learner.grade.points:>5.1f} points"
            yield said + (f"  gate closed by {closed}" if closed else "")


def padded(text: str, width: int) -> str:
    """A text cut or filled up to that many columns."""
    while columns(text) > width:
        text = text[:-2] + "…"
    return text + " " * (width - columns(text))
