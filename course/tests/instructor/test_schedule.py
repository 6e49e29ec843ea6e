"""The day: minutes add up, breaks come between exercises, and a calendar program can read it."""

from __future__ import annotations

import datetime
import itertools
import json
import zoneinfo
from pathlib import Path

import msgspec
import pytest

from paceline.cli.main import call
from paceline.records.errors import PacelineError
from paceline_course.content import Course
from paceline_course.instructor import day
from paceline_course.instructor.original import BLOCKS, original_day
from paceline_course.instructor.schedule import as_calendar, as_text, clock, pauses, ranges, zone
from paceline_course.instructor.sparing import leave_out
from paceline_course.overview import labs_of

MONDAY = datetime.date(2027, 3, 1)
NOW = datetime.datetime(2026, 12, 1, 12, 0, tzinfo=datetime.UTC)


def planned(
    course: Course, track: str = "one-day", *, end: int | None = None, gone: list[str] | None = None
) -> day.Plan:
    """A plan as the command makes it, from nine o'clock on."""
    usual_end, breaks = day.usual(track, 540)
    labs = day.without(course, labs_of(course, track), gone or [])
    wish = day.Wish(labs, MONDAY, 540, end or usual_end, breaks, 60, day.days_of(track), day.decks_of(course))
    return day.plan(wish, track, course)


@pytest.mark.parametrize("track", ["half-day", "one-day", "two-days"])
def test_every_exercise_of_a_track_stands_in_it_once_and_in_order(whole: Course, track: str) -> None:
    """And labs take as long as course.toml says."""
    plan = planned(whole, track)
    labs = labs_of(whole, track)

    assert [each for slot in plan.slots for each in slot.exercises] == [e.id for lab in labs for e in lab.exercises]
    assert sum(slot.minutes for slot in plan.slots if slot.kind == "lab") == sum(
        lab.minutes for lab in labs if lab.exercises
    )


@pytest.mark.parametrize("track", ["half-day", "one-day", "two-days"])
def test_rows_follow_each_other_without_gaps(whole: Course, track: str) -> None:
    """On each day, from nine on; slack is what is left until the end."""
    plan = planned(whole, track)
    days: dict[datetime.date, list[day.Slot]] = {}
    for slot in plan.slots:
        days.setdefault(slot.start.date(), []).append(slot)

    assert len(days) == len(plan.slack_min) == day.days_of(track)
    for slots, slack in zip(days.values(), plan.slack_min, strict=True):
        assert slots[0].start.time() == datetime.time(9)
        assert all(one.end == other.start for one, other in itertools.pairwise(slots))
        end = day.usual(track, 540)[0]
        assert slots[-1].end + datetime.timedelta(minutes=slack) == datetime.datetime.combine(
            slots[0].start.date(), datetime.time()
        ) + datetime.timedelta(minutes=end)
    assert [slot.what for slot in plan.slots if slot.what == "Lunch"] == ["Lunch"] * (track != "half-day") * len(days)


def test_a_break_comes_near_its_time_and_never_inside_an_exercise(whole: Course) -> None:
    """Half of the longest exercise away at most."""
    plan = planned(whole)
    wished = [630, 750, 915]
    taken = [slot.start.hour * 60 + slot.start.minute for slot in plan.slots if slot.kind == "break"]

    assert len(taken) == 3
    assert all(abs(one - other) <= 15 for one, other in zip(wished, taken, strict=True))


def test_what_does_not_fit_is_said_with_what_to_leave_out(whole: Course) -> None:
    """Leaving it out makes it fit, and the core is not proposed while there is something else."""
    plan = planned(whole, end=17 * 60 + 30)
    text = as_text(plan)

    assert plan.over_min > 0
    assert f"{plan.over_min} min too long" in text
    assert plan.advice
    for advice in plan.advice:
        gone = advice.partition(" (")[0].split(", ")
        assert planned(whole, end=17 * 60 + 30, gone=gone).over_min == 0, advice
        assert not any(name.partition(".")[0] in ("L5", "L8") for name in gone)
    assert "slack" in as_text(planned(whole, end=20 * 60))


def test_what_to_leave_out_is_the_least(whole: Course) -> None:
    """Compared with all choices, by trying them."""
    labs = [lab for lab in labs_of(whole, "one-day") if lab.exercises]
    first = leave_out(labs, 100, {"L5", "L8"})[0]

    assert first == "L1, L2 (115 min)"  # 60 + 55; with L6: 70 + 55 = 125, 70 + 60 = 130
    assert leave_out(labs, 10_000, set()) == []


def test_the_original_day_keeps_its_blocks(whole: Course) -> None:
    """Its hours are those of the workshop; what ours needs more is said."""
    plan = original_day(whole, MONDAY, 540)
    times = {slot.key: (f"{slot.start:%H:%M}", slot.minutes) for slot in plan.slots}

    assert times["lab-1"] == ("09:15", 120)
    assert times["lab-2"] == ("12:15", 120)
    assert times["lab-3"] == ("14:30", 90)
    assert times["assessment-1"] == ("16:00", 30)
    assert times["review-1"] == ("16:30", 15)
    over = max(sum(whole.lab(name).minutes for name in block.labs) - block.minutes for block in BLOCKS)
    assert plan.over_min == over
    assert any("assessment" in note for note in plan.notes)
    gone = plan.advice[0].partition(" (")[0].split(", ")
    assert original_day(whole, MONDAY, 540, gone).over_min == 0


def unfolded(content: bytes) -> list[str]:
    """Content lines as a reader sees them."""
    return content.decode().replace("\r\n ", "").split("\r\n")


def events(content: bytes) -> list[dict[str, str]]:
    """Properties of each event, by name."""
    found: list[dict[str, str]] = []
    for line in unfolded(content):
        name, _, value = line.partition(":")
        if line == "BEGIN:VEVENT":
            found.append({})
        elif found:
            found[-1].setdefault(name, value)
    return found


def test_a_calendar_file_is_as_the_standard_wants_it(whole: Course) -> None:
    """Lines end in CRLF and have 75 octets at most, no character is cut, times are in UTC, texts are escaped."""
    plan = planned(whole)
    content = as_calendar(plan, zone("Europe/Vienna"), NOW)

    assert content.endswith(b"END:VCALENDAR\r\n")
    assert b"\n" not in content.replace(b"\r\n", b"")
    lines = content.split(b"\r\n")
    assert max(map(len, lines)) <= 75
    assert any(line.startswith(b" ") for line in lines)
    for line in lines:
        line.decode()
    found = events(content)
    assert len(found) == len(plan.slots)
    assert all({"UID", "DTSTAMP", "DTSTART", "DTEND", "SUMMARY"} <= set(each) for each in found)
    vienna = zoneinfo.ZoneInfo("Europe/Vienna")
    for event, slot in zip(found, plan.slots, strict=True):
        begin = datetime.datetime.strptime(event["DTSTART"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
        assert begin == slot.start.replace(tzinfo=vienna)
        assert event["SUMMARY"].replace("\\,", ",").replace("\\;", ";") == slot.what
    assert any("\\," in event["SUMMARY"] for event in found)


def test_a_later_file_replaces_what_an_earlier_one_brought(whole: Course) -> None:
    """Identities stay when the day begins later; none stands there twice."""
    usual_end, breaks = day.usual("one-day", 540)
    first = planned(whole)
    later = day.plan(
        day.Wish(labs_of(whole, "one-day"), MONDAY, 600, usual_end + 60, day.usual("one-day", 600)[1], 60),
        "one-day",
        whole,
    )
    ids = [event["UID"] for event in events(as_calendar(first, None, NOW))]

    assert breaks
    assert len(set(ids)) == len(ids)
    assert ids == [event["UID"] for event in events(as_calendar(later, None, NOW))]
    other = a_week_later(first)
    assert not set(ids) & {event["UID"] for event in events(as_calendar(other, None, NOW))}


def a_week_later(plan: day.Plan) -> day.Plan:
    """The same a week later."""
    week = datetime.timedelta(days=7)
    slots = [msgspec.structs.replace(slot, start=slot.start + week) for slot in plan.slots]
    return msgspec.structs.replace(plan, slots=slots)


def test_long_lines_of_any_script_are_folded_between_characters() -> None:
    """A name of 200 characters of three octets each."""
    slot = day.Slot(key="x", start=datetime.datetime(2027, 3, 1, 9), minutes=5, kind="lab", what="学" * 200)
    content = as_calendar(day.Plan(title="t", slots=[slot], slack_min=[0]), None, NOW)

    assert max(map(len, content.split(b"\r\n"))) <= 75
    assert events(content)[0]["SUMMARY"] == "学" * 200


@pytest.mark.parametrize("text", ["9", "25:00", "nine", "9:60", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With an example."""
    with pytest.raises(PacelineError, match="no time of day"):
        clock(text)


def test_breaks_are_read_as_they_are_typed() -> None:
    """A long one is lunch."""
    assert [(each.at, each.minutes, each.what) for each in pauses("10:30/15, 12:30/60")] == [
        (630, 15, "Break"),
        (750, 60, "Lunch"),
    ]
    assert pauses("none") == []
    for text in ("10:30", "10:30/²"):
        with pytest.raises(PacelineError, match="no break"):
            pauses(text)


@pytest.mark.parametrize("words", [["--start", "20:00"], ["--preset", "workshop", "--start", "18:00"]])
def test_a_day_may_go_on_over_midnight(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It stays one day in the table."""
    assert call(["learn", "instructor", "schedule", "--date", "2027-03-01", *words]) == 0

    out = capsys.readouterr().out
    assert "Monday 01 March 2027" in out
    assert "Tuesday" not in out


@pytest.mark.parametrize("date", ["9999-12-31", "0001-01-01", "2027-02-30"])
def test_a_day_that_no_class_has_is_refused(date: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With an example."""
    assert call(["learn", "instructor", "schedule", "--track", "two-days", "--date", date]) == 2
    assert "is no date" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--end", "17:00"], ["--breaks", "none"], ["--assessment", "0"]])
def test_what_the_originals_day_decides_by_itself_is_refused(words: list[str], capsys: pytest.CaptureFixture) -> None:
    """Rather than left aside without a word."""
    assert call(["learn", "instructor", "schedule", "--preset", "workshop", *words]) == 2
    assert f"--preset workshop goes without {words[0]}" in capsys.readouterr().err


def test_ids_in_a_row_are_shortened() -> None:
    """Across a lab nothing is joined."""
    assert ranges(["L1.1", "L1.2", "L1.3", "L1.5", "L2.6"]) == "L1.1-L1.3, L1.5, L2.6"
    assert ranges([]) == ""


def test_the_command_writes_a_calendar_and_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A calendar needs the day; an unknown time zone or preset is refused before anything is written."""
    ics = tmp_path / "day.ics"
    words = ["learn", "instructor", "schedule", "--ics", str(ics)]
    assert call(words) == 2
    assert call([*words, "--date", "2027-03-01", "--timezone", "Mars/Olympus"]) == 2
    assert call([*words, "--date", "2027-03-01", "--preset", "mine"]) == 2
    assert not ics.exists()
    capsys.readouterr()

    assert call([*words, "--date", "2027-03-01", "--timezone", "Europe/Vienna", "--json"]) == 0
    assert ics.read_bytes().startswith(b"BEGIN:VCALENDAR\r\n")
    assert json.loads(capsys.readouterr().out)["slots"][0]["start"] == "2027-03-01T09:00:00"
