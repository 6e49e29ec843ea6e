"""The original workshop's day: its blocks and their minutes, filled with our labs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline_course.content import Course
from paceline_course.instructor.day import Kind, Plan, Slot, assessment_minutes, without
from paceline_course.instructor.sparing import exercises_to_leave_out


@dataclass(frozen=True)
class Block:
    """One block of that day.

    Attributes:
        key: stable, for calendars.
        kind: of the row.
        what: its name.
        minutes: that it has.
        labs: ours that it holds.
        deck: slides that are shown in it.
    """

    key: str
    kind: Kind
    what: str
    minutes: int
    labs: tuple[str, ...] = ()
    deck: str = ""


BLOCKS = (
    Block("welcome-1", "welcome", "Welcome and set-up", 15, ("L0",), "D1"),
    Block("lab-1", "lab", "Lab 1: gradient descent and the batch size", 120, ("L1", "L2"), "D1, D2, D3"),
    Block("lunch", "break", "Lunch", 60),
    Block("lab-2", "lab", "Lab 2: from one device to many", 120, ("L5",), "D5"),
    Block("break", "break", "Break", 15),
    Block("lab-3", "lab", "Lab 3: keep the accuracy", 90, ("L8",), "D6"),
    Block("assessment-1", "assessment", "Assessment", 30),
    Block("review-1", "review", "Review, survey, questions", 15, (), "D7"),
)


def original_day(course: Course, date: datetime.date, start: int, left_out: Sequence[str] = ()) -> Plan:
    """The day, with what does not fit into its block named.

    Args:
        course: whose labs and minutes.
        date: of the day.
        start: minutes after midnight.
        left_out: ids of labs and exercises.
    """
    clock = datetime.datetime.combine(date, datetime.time()) + datetime.timedelta(minutes=start)
    slots, advice, notes, worst = [], [], [], 0
    for block in BLOCKS:
        labs = without(course, [course.lab(name) for name in block.labs], left_out)
        slots.append(
            Slot(
                key=block.key,
                start=clock,
                minutes=block.minutes,
                kind=block.kind,
                what=block.what,
                exercises=[each.id for lab in labs for each in lab.exercises],
                material=", ".join(lab.notebook_name for lab in labs),
                deck=block.deck,
            )
        )
        over = sum(lab.minutes for lab in labs) - block.minutes
        worst = max(worst, over)
        longer = assessment_minutes(course) - block.minutes
        if block.kind == "assessment" and longer > 0:
            notes.append(f"our assessment takes {longer} min more than its block: let people hand it in later")
        if over > 0:
            needed = " and ".join(lab.id for lab in labs) + (" needs" if len(labs) == 1 else " need")
            way = "".join(exercises_to_leave_out(labs, over)) or "a lab of it"
            advice.append(f"{way}: {needed} {over} min more than the block has")
        clock += datetime.timedelta(minutes=block.minutes)
    return Plan(title="The original workshop's day", slots=slots, slack_min=[-worst], advice=advice, notes=notes)


def shares(plan: Plan) -> Mapping[str, int]:
    """Minutes of each kind of row."""
    found: dict[str, int] = {}
    for slot in plan.slots:
        found[slot.kind] = found.get(slot.kind, 0) + slot.minutes
    return found
