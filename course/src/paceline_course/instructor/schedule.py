"""A plan as a table for people, and as a calendar file (RFC 5545) for their programs."""

from __future__ import annotations

import datetime
import hashlib
import re
import zoneinfo
from collections.abc import Iterator

from paceline import __version__
from paceline.records.errors import PacelineError
from paceline_course.instructor.day import Pause, Plan, Slot
from paceline_course.instructor.original import shares

_OCTETS = 75
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def clock(text: str) -> int:
    """Minutes after midnight of a time such as 9:00.

    Raises:
        PacelineError: it is none.
    """
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise PacelineError(f"{text} is no time of day", hint="as 9:00 or 14:30")
    return int(found[1]) * 60 + int(found[2])


def pauses(text: str) -> list[Pause]:
    """Breaks as they are typed, `10:30/15, 12:30/60`; a break of 40 minutes and more is lunch. `none` for none.

    Raises:
        PacelineError: that is not what was typed.
    """
    found = []
    for word in [] if text.strip() in ("", "none") else text.split(","):
        at, _, minutes = word.strip().partition("/")
        if not minutes.strip().isdecimal() or not 0 < int(minutes) <= 240:
            raise PacelineError(f"{word.strip()} is no break", hint="time and minutes: --breaks 10:30/15,12:30/60")
        found.append(Pause(clock(at), int(minutes), "Lunch" if int(minutes) >= 40 else "Break"))
    return found


def zone(name: str) -> zoneinfo.ZoneInfo:
    """A time zone by its name.

    Raises:
        PacelineError: this machine does not know it.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PacelineError(
            f"there is no time zone {name}", hint="as Europe/Vienna; where there are none at all: pip install tzdata"
        ) from error


def as_text(plan: Plan) -> str:
    """A table a day, then what is left over or does not fit; no newline at the end."""
    lines = [plan.title]
    for number, slots in enumerate(_days(plan.slots)):
        date = slots[0].start.date()
        lines += ["", f"{date:%A %d %B %Y}" if len(plan.slack_min) == 1 else f"day {number + 1} · {date:%A %d %B %Y}"]
        lines += list(_table(slots))
        lines.append(_left(plan.slack_min[number], plan))
    minutes = shares(plan)
    said = ", ".join(f"{kind} {minutes[kind]} min" for kind in ("lab", "assessment", "break") if kind in minutes)
    return "\n".join([*lines, "", f"in all: {said}", *_advice(plan), *(f"note: {note}" for note in plan.notes)])


def _days(slots: list[Slot]) -> list[list[Slot]]:
    """The rows of each day: those that follow each other without a gap, also over midnight."""
    days: list[list[Slot]] = []
    for slot in slots:
        if days and days[-1][-1].end == slot.start:
            days[-1].append(slot)
        else:
            days.append([slot])
    return days


def _table(slots: list[Slot]) -> Iterator[str]:
    rows = [("time", "min", "what", "exercises", "slides", "notebook")]
    for slot in slots:
        time = f"{slot.start:%H:%M}-{slot.end:%H:%M}"
        rows.append((time, str(slot.minutes), slot.what, ranges(slot.exercises), slot.deck, slot.material))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if at == 1 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield ("  " + "  ".join(cells)).rstrip()


def _left(slack: int, plan: Plan) -> str:
    if slack > 0:
        return f"  slack: {slack} min until the end of the day"
    if slack == 0:
        return "  slack: none"
    where = "the fullest block" if any("block" in each for each in plan.advice) else "the day"
    return f"  DOES NOT FIT: {where} is {-slack} min too long"


def _advice(plan: Plan) -> list[str]:
    if not plan.over_min:
        return []
    if not plan.advice:
        return ["no choice of labs makes it fit: another track, or a later --end"]
    return ["to fit, leave out one of (--leave-out):", *(f"  {each}" for each in plan.advice)]


def ranges(exercises: list[str]) -> str:
    """`L1.1-L1.4, L2.1` for a list of ids."""
    runs: list[list[str]] = []
    for each in exercises:
        lab, _, number = each.partition(".")
        before = runs[-1][-1].partition(".") if runs else ("", "", "")
        if before[0] == lab and before[2].isdecimal() and number.isdecimal() and int(before[2]) + 1 == int(number):
            runs[-1].append(each)
        else:
            runs.append([each])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def as_calendar(plan: Plan, timezone: zoneinfo.ZoneInfo | None, now: datetime.datetime) -> bytes:
    """A file that calendar programs read.

    Args:
        plan: what to write.
        timezone: of the class; times are written in UTC then. Without one they are left floating: every reader takes
            them as times of their own.
        now: UTC, when the file is made; of two files the later one counts.
    """
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:-//Paceline//learn {__version__}//EN", "CALSCALE:GREGORIAN"]
    lines.append("METHOD:PUBLISH")
    for slot in plan.slots:
        lines += ["BEGIN:VEVENT", *_event(slot, plan, timezone, now), "END:VEVENT"]
    lines.append("END:VCALENDAR")
    return b"".join(_folded(line) for line in lines)


def _event(slot: Slot, plan: Plan, timezone: zoneinfo.ZoneInfo | None, now: datetime.datetime) -> Iterator[str]:
    # From the class's first day and the row, not from its time: a day that begins later replaces what was there.
    first = plan.slots[0].start.date().isoformat()
    digest = hashlib.sha256(f"{first} {slot.key}".encode()).hexdigest()[:24]
    yield f"UID:{digest}@learn.paceline"
    yield f"DTSTAMP:{now:%Y%m%dT%H%M%SZ}"
    yield f"DTSTART:{_stamp(slot.start, timezone)}"
    yield f"DTEND:{_stamp(slot.end, timezone)}"
    yield f"SUMMARY:{_escaped(slot.what)}"
    details = [("Exercises", ranges(slot.exercises)), ("Notebook", slot.material), ("Slides", slot.deck)]
    said = "\n".join(f"{name}: {value}" for name, value in details if value)
    if said:
        yield f"DESCRIPTION:{_escaped(said)}"
    yield f"CATEGORIES:{slot.kind.upper()}"
    if slot.kind == "break":
        yield "TRANSP:TRANSPARENT"


def _stamp(moment: datetime.datetime, timezone: zoneinfo.ZoneInfo | None) -> str:
    if timezone is None:
        return f"{moment:%Y%m%dT%H%M%S}"
    return f"{moment.replace(tzinfo=timezone).astimezone(datetime.UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    for sign in ("\\", ";", ","):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\r\n", "\n").replace("\n", "\\n")


def _folded(line: str) -> bytes:
    """A content line: at most 75 octets, no character cut in two, the next ones begin with a blank."""
    parts: list[bytes] = []
    held = b""
    for character in line:
        encoded = character.encode()
        if len(held) + len(encoded) > _OCTETS:
            parts.append(held)
            held = b" "
        held += encoded
    return b"\r\n".join([*parts, held]) + b"\r\n"
