"""A grade in a terminal: a line a line, the points, the first failure in full; foreign text steers nothing."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from course.tests.assess import grades

from paceline_course.assess.text import as_text, closed_by, columns, folded, line_text, visible

replace = msgspec.structs.replace


def row(text: str, name: str) -> str:
    """The one row of a line of the rubric."""
    (found,) = [one for one in text.split("\n") if f" {name} " in one]
    return found


@pytest.mark.parametrize("name", grades.ALL)
def test_every_line_has_a_row_and_nothing_is_wider_than_100_columns(name):
    """Whatever stands in the grade: all lines of the rubric are there once, in order, and the width is kept."""
    grade = grades.ALL[name]()

    text = as_text(grade)

    rows = [row(text, line.id) for line in grade.lines]
    assert sorted(rows, key=text.index) == rows
    assert [one for one in text.split("\n") if columns(one) > 100] == []
    assert not text.endswith("\n")


def test_rows_tell_state_points_and_title():
    """Passed, in part, failed and not judged differ in the first word; points stand with what the line can give."""
    merit, stopped = as_text(grades.merit()), as_text(grades.stopped())

    first = " ".join(row(merit, "A.stop").split())
    assert first == "ok 5 of 5 A.stop all processes stop with the same epoch, by accuracy and by time"
    assert row(merit, "B.accuracy").split()[:4] == ["part", "10.67", "of", "16"]
    assert row(merit, "D.forecast").split()[:4] == ["NO", "0", "of", "2.5"]
    assert row(stopped, "D.hang").split()[:4] == ["--", "-", "of", "2.5"]


def test_parts_and_the_whole_are_summed():
    """Each part has its points, and the result says what is lacking to the next mark."""
    merit = as_text(grades.merit())
    full = as_text(grades.grade())
    short = as_text(grades.grade(lines=grades.lines({"B.accuracy": {"points": 0.0, "state": "failed", "got": "0.61"}})))

    assert "B Accuracy, 14.67 of 20" in merit
    assert "  merit, 92.2 of 100 points; merit is given from 85" in merit
    assert "  merit, 100 of 100 points" in full
    assert "  passed, 84 of 100 points; 1 more and it is with merit" in short


def test_a_closed_gate_is_named_though_the_points_would_do():
    """83.4 points and one gate line failed: the text says both, and which line."""
    text = as_text(grades.failed())

    assert "  failed, 83.4 of 100 points: enough of them, but the gate is closed" in text
    assert "  gate closed by A.oracle: whoever fails one of its lines does not pass" in text


def test_lines_that_were_not_reached_say_why_and_how_to_reach_them():
    """A grading that stopped counts them, names the reason and the flag; one that did not stop names none."""
    stopped = " ".join(as_text(grades.stopped()).split())

    assert "19 lines with 89 points not reached: stopped at the first gate line that failed" in stopped
    assert "--all judges every line" in stopped
    assert "not reached" not in as_text(grades.failed())
    asked = grades.lines({"D.change": {"state": "untested", "points": 0.0}})
    assert "1 line with 2.5 points not reached: the grading was asked to end before" in as_text(
        grades.grade(lines=asked, complete=False)
    )


def test_a_line_that_was_reached_and_could_not_be_judged_is_told_apart() -> None:
    """It is named, and nobody is told that the grading ended before it."""
    bare = {"state": "untested", "points": 0.0}
    changes = {"D.hang": bare | {"message": "not-run", "got": "hang.txt was not given out with this folder"}}
    all_reached = as_text(grades.grade(lines=grades.lines(changes)))
    stopped = as_text(grades.grade(lines=grades.lines(changes | {"D.change": bare}), complete=False))

    said = "1 line with 2.5 points not judged: the grader had nothing to hold them against (D.hang)"
    assert said in " ".join(all_reached.split())
    assert "not reached" not in all_reached
    assert said in " ".join(stopped.split())
    assert "1 line with 2.5 points not reached: the grading was asked to end before" in " ".join(stopped.split())


def test_the_first_failure_is_told_in_full():
    """All that is known of it, under names; a failed line goes before one that lost part of its points."""
    failed, merit = as_text(grades.failed()), as_text(grades.merit())
    told = failed[failed.index("first of what lacks points") :]

    assert "A.oracle, first of what lacks points:" in failed
    assert "D.forecast, first of what lacks points:" in merit
    line = grades.failed().line("A.oracle")
    flat = " ".join(told.split())
    for value in (line.ran, line.expected, line.got, line.likely, line.look, line.card, line.printed):
        assert " ".join(value.split()) in flat
    labels = [one[2:11].strip() for one in told.split("\n")[1:8]]
    assert [label for label in labels if label] == ["ran", "expected", "got", "likely", "look at"]
    assert told.endswith("message hang")


def test_a_grade_with_all_points_tells_of_no_failure():
    """Nothing follows the result."""
    assert as_text(grades.grade()).endswith("gate open: its 7 lines passed")


def test_a_line_that_was_judged_just_now_is_one_line_with_its_seconds():
    """It fits into 100 columns with the time at the end, also where the title is long or hostile."""
    line = grades.grade().line("A.oracle")

    text = line_text(line)
    evil = line_text(replace(line, title="\x1b[2Jgone\n" + "漢" * 300))

    assert text.startswith("  ok   9 of 9")
    assert text.endswith(" 7.25 s")
    assert columns(text) <= 100
    assert columns(evil) <= 100
    assert "\n" not in evil
    assert "gone" in evil
    assert line_text(replace(line, seconds=0.0)).endswith("…")


def test_foreign_text_steers_no_terminal():
    """No control character, no turn of the direction of writing, no half a character reaches the terminal."""
    text = as_text(grades.hostile())

    bad = {one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp")}
    assert bad == set()
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\ufeff") & set(text)
    text.encode()


def test_visible_keeps_what_people_write():
    """Words of any script, joined pictures, line breaks; colours vanish, a progress bar becomes lines."""
    assert visible("漢字 é עברית 👩‍🚀 a\u00a0b") == "漢字 é עברית 👩‍🚀 a b"
    assert visible("\x1b[1;31mred\x1b[0m\ttab") == "red tab"
    assert visible("10 %\r20 %\r\nend") == "10 %\n20 %\nend"
    assert visible("a\x00b\x07c\x9bd") == "a�b�c�d"
    assert visible(" two\n lines ", single=True) == "two lines"


def test_long_text_is_cut_and_says_by_how_much():
    """The beginning or the end is kept; what is left out is counted exactly, also of what was never looked at."""
    text = "".join(chr(ord("a") + at % 26) for at in range(10_000))

    begin, end = visible(text, 100), visible(text, 100, end=True)

    assert begin == f"{text[:100]} … (9,900 more characters)"
    assert end == f"(9,900 characters left out) … {text[-100:]}"
    assert visible(text[:100], 100) == text[:100]


def test_lines_are_broken_by_columns_and_lose_nothing():
    """Wide letters take two columns; what was broken is whole again when joined."""
    wide, mixed = "漢" * 130, "wort 漢字かな " * 20

    for text in (wide, mixed, "x" * 250):
        lines = folded(text, 40)
        assert max(columns(line) for line in lines) <= 40
        assert "".join(lines) == text
    assert folded("漢" * 21, 40) == ["漢" * 20, "漢"]


def test_whoever_saw_the_lines_as_they_came_gets_the_parts_only():
    """Points, result and the first failure stay."""
    grade = grades.failed()
    short = as_text(grade, lines_too=False)
    assert "A Correctness, " in short
    assert all(f" {line.id} " not in short for line in grade.lines)
    assert short.endswith(as_text(grade).rpartition("\n\n  failed")[2])


def test_what_closed_the_gate_fits_into_a_row_of_a_table():
    """The first line, its message, and how many more there are."""
    two = {name: {"state": "failed", "points": 0.0, "message": "hang"} for name in ("A.runs", "A.stop")}

    assert closed_by(grades.grade(lines=grades.lines(two))) == "A.runs (hang) and 1 more"
    assert closed_by(grades.failed()).startswith("A.oracle (")
    assert closed_by(grades.grade()) == ""
