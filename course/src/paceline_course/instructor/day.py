"""The plan of a day, or of several: labs with the minutes of course.toml, breaks between exercises, what is left over.

A lab may be interrupted between two of its exercises, so a break comes at the end of an exercise that is nearest to
its wished time, not in the middle of one.
"""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from paceline.records.errors import PacelineError
from paceline_course.content import Course, Lab
from paceline_course.instructor.sparing import leave_out
from paceline_course.overview import labs_of
from paceline_course.workshop import load_workshop

WELCOME_MIN, REVIEW_MIN = 15, 15
CORE = "half-day"
"""Labs of this track are the last that are left out."""
_DAYS = {"two-days": 2}
_LONG_MIN, _SHORT_MIN = 9 * 60, 5 * 60 + 45
_MOST_DECKS = 2

Kind = Literal["welcome", "lab", "break", "assessment", "review"]


@dataclass(frozen=True)
class Pause:
    """A break that is wished for.

    Attributes:
        at: minutes after midnight; taken between two exercises, as near to it as may be.
        minutes: how long.
        what: its name.
    """

    at: int
    minutes: int
    what: str = "Break"


@dataclass(frozen=True)
class Wish:
    """What a plan is asked to hold.

    Attributes:
        labs: in order, exercises that are left out already gone.
        date: of the first day.
        start: minutes after midnight, of each day.
        end: minutes after midnight, of each day; what comes later does not fit.
        pauses: of each day.
        assessment_min: of the last day; 0 for none.
        days: on how many the labs are shared out.
        decks: slides that go with a lab, by its id.
    """

    labs: Sequence[Lab]
    date: datetime.date
    start: int
    end: int
    pauses: Sequence[Pause] = ()
    assessment_min: int = 0
    days: int = 1
    decks: Mapping[str, str] = field(default_factory=dict)


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the plan."""

    key: str
    """The same whenever the same row is planned anew: calendars replace by it."""
    start: datetime.datetime
    """Local time of the class."""
    minutes: int
    kind: Kind
    what: str
    exercises: list[str] = []
    material: str = ""
    deck: str = ""

    @property
    def end(self) -> datetime.datetime:
        """When it is over."""
        return self.start + datetime.timedelta(minutes=self.minutes)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What was planned."""

    title: str
    slots: list[Slot]
    slack_min: list[int]
    """Of each day: from its last row to its end; negative where it does not fit."""
    advice: list[str] = []
    """What to leave out, where it does not fit."""
    notes: list[str] = []
    """What else is to be known."""

    @property
    def over_min(self) -> int:
        """By how much the day that fits least is too long; 0 when all fit."""
        return max(0, -min(self.slack_min, default=0))


@dataclass(frozen=True)
class _Piece:
    """What is not interrupted."""

    kind: Kind
    what: str
    minutes: int
    lab: Lab | None = None
    exercise: str = ""


def plan(wish: Wish, title: str, course: Course) -> Plan:
    """Put labs and breaks into days."""
    slots: list[Slot] = []
    slack, advice = [], []
    for number, pieces in enumerate(_days(wish)):
        day = list(_rows(wish, number, pieces))
        slots += day
        last = day[-1].end if day else _moment(wish, number, wish.start)
        left = round((_moment(wish, number, wish.end) - last).total_seconds() / 60)
        slack.append(left)
        if left < 0:
            here = [piece.lab for piece in pieces if piece.lab is not None]
            labs = [lab for lab in wish.labs if lab in here]
            advice += leave_out(labs, -left, {lab.id for lab in core(course)})
    return Plan(title=title, slots=slots, slack_min=slack, advice=advice)


def days_of(track: str) -> int:
    """On how many days a track is taught.

    Raises:
        PacelineError: it has no timetable.
    """
    if track == "self-paced":
        raise PacelineError("the track self-paced has no timetable", hint="--track half-day, one-day or two-days")
    return _DAYS.get(track, 1)


def usual(track: str, start: int) -> tuple[int, list[Pause]]:
    """When a day ends that begins at `start`, and its breaks, where nobody said otherwise."""
    if track == CORE:
        return start + _SHORT_MIN, [Pause(start + 135, 15)]
    return start + _LONG_MIN, [Pause(start + 90, 15), Pause(start + 210, 60, "Lunch"), Pause(start + 375, 15)]


def assessment_minutes(course: Course) -> int:
    """That the course's own assessment takes; 0 where it has none."""
    return course.assessment.minutes if course.assessment is not None else 0


def core(course: Course) -> list[Lab]:
    """The labs that are kept as long as possible; none where the course has no such track."""
    try:
        return labs_of(course, CORE)
    except PacelineError:
        return []


def without(course: Course, labs: Sequence[Lab], names: Sequence[str]) -> list[Lab]:
    """The labs without those, or those exercises, that are named.

    Raises:
        PacelineError: there is no such lab or exercise.
    """
    gone_labs = {course.lab(name).id for name in names if "." not in name and "_" not in name}
    gone = {course.exercise(name).id for name in names if "." in name or "_" in name}
    kept = []
    for lab in labs:
        left = [each for each in lab.exercises if each.id not in gone]
        if lab.id in gone_labs or (lab.exercises and not left):
            continue
        spared = sum(each.minutes for each in lab.exercises) - sum(each.minutes for each in left)
        kept.append(msgspec.structs.replace(lab, exercises=left, minutes=lab.minutes - spared))
    return kept


def decks_of(course: Course) -> dict[str, str]:
    """The slides that go with each lab, as course/workshop.toml has them: those named most often, two at most."""
    counts: dict[str, Counter[str]] = {}
    for topic in load_workshop(Path(course.folder)).topics:
        for name in topic.lab:
            counts.setdefault(name.partition(".")[0], Counter())[topic.deck] += 1
    found = {}
    for lab, count in counts.items():
        often = max(count.values()) / 2
        ranked = sorted((deck for deck in count if count[deck] >= often), key=lambda deck: (-count[deck], deck))
        ranked = ranked[:_MOST_DECKS]
        found[lab] = ", ".join(sorted(ranked))
    return found


def _days(wish: Wish) -> list[list[_Piece]]:
    """What each day holds: labs are shared out whole, so that the days are about equally long."""
    labs = [list(_pieces(lab)) for lab in wish.labs if lab.exercises]
    set_up = next((lab for lab in wish.labs if not lab.exercises), None)
    opening = WELCOME_MIN if set_up is None else max(WELCOME_MIN, set_up.minutes)
    welcome = _Piece("welcome", f"Welcome; {set_up.title.lower()}" if set_up else "Welcome", opening, set_up)
    closing = [_Piece("assessment", "Assessment", wish.assessment_min)] if wish.assessment_min else []
    closing.append(_Piece("review", "Review, survey, questions", REVIEW_MIN))
    room = wish.end - wish.start - sum(pause.minutes for pause in wish.pauses)
    days: list[list[_Piece]] = []
    ahead = [[welcome], *labs, closing]
    for number in range(wish.days):
        if number == wish.days - 1:
            days.append([piece for block in ahead for piece in block])
            break
        share = sum(piece.minutes for block in ahead for piece in block) / (wish.days - number)
        sums = list(itertools.accumulate(sum(piece.minutes for piece in block) for block in ahead))
        fitting = [at for at, total in enumerate(sums[:-1]) if total <= room] or [0]
        cut = 1 + min(fitting, key=lambda at: abs(sums[at] - share))
        days.append([piece for block in ahead[:cut] for piece in block])
        ahead = ahead[cut:]
    return days


def _pieces(lab: Lab) -> Iterator[_Piece]:
    """A lab in exercises, each with its share of the reading."""
    reading = lab.minutes - sum(each.minutes for each in lab.exercises)
    each_reads, more = divmod(reading, len(lab.exercises))
    for number, exercise in enumerate(lab.exercises):
        minutes = exercise.minutes + each_reads + (number < more)
        yield _Piece("lab", lab.title, minutes, lab, exercise.id)


def _rows(wish: Wish, day: int, pieces: Sequence[_Piece]) -> Iterator[Slot]:
    """The rows of one day: pieces of a lab in one row, as long as no break comes between."""
    clock = wish.start
    ahead = sorted((pause for pause in wish.pauses if pause.at > wish.start), key=lambda pause: pause.at)
    parts: Counter[str] = Counter()
    held: list[_Piece] = []

    def row(pieces: Sequence[_Piece], began: int) -> Slot:
        first = pieces[0]
        name = first.lab.id if first.lab is not None else first.kind
        parts[name] += 1
        if first.kind != "lab":
            again = parts[name] > 1
            key = f"{first.kind}-{day + 1}" + (f"-{parts[name]}" if again else "")
        else:
            key = f"{name}-{day + 1}-{parts[name]}"
        return Slot(
            key=key,
            start=_moment(wish, day, began),
            minutes=sum(piece.minutes for piece in pieces),
            kind=first.kind,
            what=(f"{name} · {first.what}" if first.kind == "lab" else first.what)
            + (", continued" if first.kind == "lab" and parts[name] > 1 else ""),
            exercises=[piece.exercise for piece in pieces if piece.exercise],
            material=_material(first),
            deck=_deck(wish, first),
        )

    began = clock
    for piece in pieces:
        while ahead and clock > wish.start and ahead[0].at - clock <= clock + piece.minutes - ahead[0].at:
            pause = ahead.pop(0)
            if held:
                yield row(held, began)
                held = []
            yield row([_Piece("break", pause.what, pause.minutes)], clock)
            clock += pause.minutes
        if held and (held[0].lab is not piece.lab or piece.kind != "lab"):
            yield row(held, began)
            held = []
        if not held:
            began = clock
        held.append(piece)
        clock += piece.minutes
    if held:
        yield row(held, began)


def _material(piece: _Piece) -> str:
    if piece.kind == "assessment":
        return "assessment/TASK.md"
    return piece.lab.notebook_name if piece.lab is not None else ""


def _deck(wish: Wish, piece: _Piece) -> str:
    if piece.kind == "review":
        return "D7" if wish.decks else ""
    if piece.kind == "assessment":
        return wish.decks.get(piece.kind, "")
    return wish.decks.get(piece.lab.id, "") if piece.lab is not None else ""


def _moment(wish: Wish, day: int, minutes: int) -> datetime.datetime:
    midnight = datetime.datetime.combine(wish.date + datetime.timedelta(days=day), datetime.time())
    return midnight + datetime.timedelta(minutes=minutes)
