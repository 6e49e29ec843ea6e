"""`paceline learn instructor schedule`: the day's plan; done in `paceline_course.instructor`."""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.options import command_from
from paceline.records.errors import PacelineError
from paceline.settings.declare import VerbSettings, control, format_setting
from paceline.settings.legal import Range

if TYPE_CHECKING:
    from paceline_course.instructor.day import Plan

HELP = "Plan the day: times, labs, breaks, slides, and what to leave out if it does not fit."


@dataclass(frozen=True)
class ScheduleSettings(VerbSettings):
    """Settings of `paceline learn instructor schedule`."""

    noun = "schedule"

    track: str = control("one-day", "Track: half-day, one-day or two-days.", value="NAME")
    preset: str | None = control(
        None, "workshop: the blocks and minutes of the original workshop.", ("workshop",), value="NAME"
    )
    date: str | None = control(None, "First day, for example 2027-03-01. [default: today]", value="DATE")
    start: str = control("9:00", "Start of each day.", value="TIME")
    end: str | None = control(None, "End of each day. [default: 9 hours later; half-day: 5:45]", value="TIME")
    breaks: str | None = control(
        None,
        "Breaks, for example 10:30/15,12:30/60, or none. [default: two of 15 min, lunch of 60]",
        value="TIME/MIN,...",
    )
    assessment: int | None = control(
        None,
        "Length of the assessment; 0 for none. [default: the course's]",
        Range(0, 480, closed=True),
        value="MINUTES",
    )
    leave_out: str | None = control(None, "Labs and exercises to leave out, for example L6 or L8.4,L8.5.", value="IDS")
    timezone: str | None = control(None, "Time zone for --ics, for example Europe/Vienna.", value="ZONE")
    ics: str | None = control(None, "Also write a calendar file.", value="FILE")
    format: str = format_setting()


def run_schedule(given: dict[str, Any]) -> None:
    """Carry out the command with what the user gave."""
    from paceline.records.rundir import write_atomic
    from paceline_course.instructor import schedule

    settings = ScheduleSettings(**given)
    settings.check_fields()
    place = schedule.zone(settings.timezone) if settings.timezone is not None else None
    plan = _planned(settings)
    if settings.ics is not None:
        if settings.date is None:
            raise PacelineError("a calendar needs the day", hint="--date 2027-03-01")
        write_atomic(Path(settings.ics), schedule.as_calendar(plan, place, datetime.datetime.now(datetime.UTC)))
        sys.stderr.write(f"written: {settings.ics}" + ("" if place else ", without a time zone (--timezone)") + "\n")
    if settings.format == "json":
        import msgspec

        print(json.dumps(msgspec.to_builtins(plan) | {"over_min": plan.over_min}))
    else:
        print(schedule.as_text(plan))


COMMAND = command_from(ScheduleSettings, run_schedule, HELP)


def _planned(settings: ScheduleSettings) -> Plan:
    from paceline_course.content import load_course
    from paceline_course.instructor import day, original, schedule
    from paceline_course.overview import labs_of

    course, track = load_course(), settings.track
    first, begins = _date(settings.date), schedule.clock(settings.start)
    gone = [word.strip() for word in (settings.leave_out or "").split(",") if word.strip()]
    if settings.preset is not None:
        own = [name for name in ("end", "breaks", "assessment") if getattr(settings, name) is not None]
        if own:
            raise PacelineError(
                f"--preset workshop goes without --{own[0]}", why="its blocks and minutes are the original's"
            )
        return original.original_day(course, first, begins, gone)
    labs = day.without(course, labs_of(course, track), gone)
    usual_end, usual_breaks = day.usual(track, begins)
    ends = schedule.clock(settings.end) if settings.end is not None else usual_end
    if ends <= begins:
        raise PacelineError("the day ends before it begins", hint="--start 9:00 --end 17:30")
    pauses = schedule.pauses(settings.breaks) if settings.breaks is not None else usual_breaks
    judged = day.assessment_minutes(course) if settings.assessment is None else settings.assessment
    wish = day.Wish(labs, first, begins, ends, pauses, judged, day.days_of(track), day.decks_of(course))
    return day.plan(wish, next(each.title for each in course.tracks if each.name == track), course)


def _date(text: str | None) -> datetime.date:
    try:
        found = datetime.date.fromisoformat(text) if text is not None else datetime.datetime.now().date()
    except ValueError:
        raise PacelineError(f"{text} is no date", hint="as 2027-03-01") from None
    if not 1970 <= found.year < datetime.MAXYEAR:  # calendars know no others, and a second day has to come after it
        raise PacelineError(f"{text} is no date of a class", hint="as 2027-03-01")
    return found
