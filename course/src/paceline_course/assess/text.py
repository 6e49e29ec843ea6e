"""A grade as text for a terminal, and what page and terminal say with the same words."""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence

from paceline.report import words
from paceline_course.assess.grade import PARTS, Grade, Line

WIDTH = 100
"""Columns of a terminal."""
NOT_REACHED = "not reached: stopped at the first gate line that failed; --all judges every line"
NOT_ASKED = "not reached: the grading was asked to end before"
NOT_JUDGED = "not judged: the grader had nothing to hold them against"
_MOST = 600
"""Characters of a value that are shown."""
_PRINTED = 4000
_CARD = 6000
_MARKS = {"passed": "ok", "partly": "part", "failed": "NO", "untested": "--"}
# Colours and moves of the cursor, titles of the window: what a terminal would obey, and nobody reads.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_JOINERS = "\u200c\u200d"
"""Some scripts cannot be written without these two, and they do no harm."""
_ROWS = (("ran", "ran"), ("expected", "expected"), ("got", "got"), ("likely", "likely"), ("look at", "look"))


def as_text(grade: Grade, *, lines_too: bool = True) -> str:
    """For people: a line a line of the rubric, the points, and of the first that failed all that is known.

    At most 100 columns, no colour, no newline at the end.

    Args:
        grade: of a submission.
        lines_too: without, the parts only, for those who saw the lines as they came.
    """
    said = folded(head(grade), WIDTH)
    for letter, lines in by_part(grade):
        points = total(lines)
        name = f"{visible(letter, 24, single=True)} {PARTS.get(letter, '')}".strip()
        headline = f"{name}, {number(points[0])} of {number(points[1])}"
        said += ["", headline, *(_row(line, WIDTH) for line in lines)] if lines_too else [f"  {headline}"]
    said += ["", *_wrapped(result_in_words(grade), WIDTH - 2, "  ")]
    for sentence in (gate_in_words(grade), untested_in_words(grade)):
        said += _wrapped(sentence, WIDTH - 2, "  ")
    if (failed := first_failure(grade)) is not None:
        said += ["", *_in_full(failed)]
    return "\n".join(line.rstrip() for line in said)


def line_text(line: Line) -> str:
    """One line of the rubric that was judged just now, on one line of 100 columns, its seconds at the end."""
    took = words.duration(line.seconds) if line.seconds else ""
    return _between(_row(line, WIDTH - 13), took).rstrip()


def first_failure(grade: Grade) -> Line | None:
    """The first line that failed; where none did, the first that has only part of its points."""
    for state in ("failed", "partly"):
        for line in grade.lines:
            if line.state == state:
                return line
    return None


def by_part(grade: Grade) -> list[tuple[str, list[Line]]]:
    """Letters of the parts with their lines, in the order of the rubric."""
    letters = list(dict.fromkeys(line.id.partition(".")[0] for line in grade.lines))
    return [(letter, [line for line in grade.lines if line.id.partition(".")[0] == letter]) for letter in letters]


def total(lines: Sequence[Line]) -> tuple[float, float]:
    """Points of these lines, and how many they can give."""
    return sum(line.points for line in lines), sum(line.most for line in lines)


def head(grade: Grade) -> str:
    """What was graded, whose, when."""
    who = visible(grade.learner, 80, single=True)
    parts = [f"{'Final' if grade.kind == 'final' else 'Practice'} grading" + (f" of {who}" if who else "")]
    return " · ".join([*parts, moment(grade.started_at), f"took {words.duration(grade.seconds)}"])


def result_in_words(grade: Grade) -> str:
    """The result, the points, and how many are lacking to what comes next."""
    points = f"{grade.result}, {number(grade.points)} of 100 points"
    if grade.result == "merit":
        return f"{points}; merit is given from {grade.merit_points}"
    if grade.result == "passed":
        return f"{points}; {number(grade.merit_points - grade.points)} more and it is with merit"
    if grade.points >= grade.pass_points:
        return f"{points}: enough of them, but the gate is closed"
    return f"{points}; {number(grade.pass_points - grade.points)} short of the {grade.pass_points} that pass"


def gate_in_words(grade: Grade) -> str:
    """Whether the gate is open, and which lines close it; empty where no line is a gate."""
    lines = [line for line in grade.lines if line.gate]
    if not lines:
        return ""
    if grade.gate:
        return f"gate open: its {words.plural(len(lines), 'line')} passed"
    closed = [visible(line.id, 40, single=True) for line in _closing(grade)]
    if not closed:
        return "gate closed: not all of its lines were judged"
    return f"gate closed by {', '.join(closed)}: whoever fails one of its lines does not pass"


def closed_by(grade: Grade) -> str:
    """The first line that closes the gate, its message, and how many more do: "A.runs (hang) and 6 more"; or empty."""
    closing = _closing(grade)
    if not closing:
        return ""
    said = visible(f"{closing[0].id} ({closing[0].message})" if closing[0].message else closing[0].id, 80, single=True)
    return said + (f" and {len(closing) - 1} more" if closing[1:] else "")


def _closing(grade: Grade) -> list[Line]:
    return [line for line in grade.lines if line.gate and line.state in ("failed", "partly")]


def untested_in_words(grade: Grade) -> str:
    """How many lines were not judged, why, and how many points they could give; empty where all were."""
    lines = [line for line in grade.lines if line.state == "untested"]
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(why_untested(grade, line), []).append(line)
    said = []
    for why, each in found.items():
        names = f" ({', '.join(visible(line.id, 40, single=True) for line in each)})" if why == NOT_JUDGED else ""
        said.append(f"{words.plural(len(each), 'line')} with {number(total(each)[1])} points {why}{names}")
    return "; ".join(said)


def why_untested(grade: Grade, line: Line) -> str:
    """Why a line was not judged: it was reached, and could not be, or it was not reached."""
    if grade.complete or line.message:
        return NOT_JUDGED
    closed = any(line.gate and line.state in ("failed", "partly") for line in grade.lines)
    return NOT_REACHED if closed else NOT_ASKED


def state_in_words(line: Line, complete: bool) -> str:
    """The state in a word or two."""
    if line.state == "untested":
        return "not judged" if complete or line.message else "not reached"
    return line.state


def moment(written: str) -> str:
    """2026-05-01T10:22:03.123+00:00 as 2026-05-01 10:22 UTC; anything else as it stands."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d(\.\d+)?)?(Z|\+00:00)?", written)
    return f"{found[1]} {found[2]} UTC" if found else visible(written, 40, single=True)


def number(value: float) -> str:
    """Points: 4, 2.5, 3.33; no more than two places."""
    return f"{round(value, 2):g}" if math.isfinite(value) else "not a number"


def visible(text: str, most: int = _MOST, *, single: bool = False, end: bool = False) -> str:
    """Foreign text that is safe to show and not too long: escape sequences are dropped, control characters become �.

    Args:
        text: of a program that may be hostile.
        most: characters that are kept; how many are left out is said.
        single: on one line: line breaks and tabs become spaces.
        end: keep the end of it, not the beginning.
    """
    # What a reader could not use is cut before anything else, so that a long text costs nothing.
    roughly = text[-4 * most :] if end else text[: 4 * most]
    lines = _ESCAPES.sub("", roughly).replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    clean = "".join(map(_shown, lines))
    if single:
        clean = " ".join(clean.split())
    left = max(0, len(clean) - most) + len(text) - len(roughly)
    if left == 0:
        return clean
    return (
        f"({left:,} characters left out) … {clean[-most:]}" if end else f"{clean[:most]} … ({left:,} more characters)"
    )


def _shown(character: str) -> str:
    if character.isprintable() or character == "\n" or character in _JOINERS:
        return character
    kind = unicodedata.category(character)
    if kind == "Zs":
        return " "
    # Line and paragraph separators break a line; what turns the direction of writing about could forge what is read.
    return "\n" if kind in ("Zl", "Zp") else "\ufffd"


def columns(text: str) -> int:
    """How wide a terminal shows it: letters of East Asia and pictures take two columns, marks on letters none."""
    return sum(
        0 if unicodedata.combining(one) or one in _JOINERS else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def folded(text: str, width: int) -> list[str]:
    """The text in lines of at most so many columns, broken between words where that can be."""
    lines: list[str] = []
    for line in text.split("\n"):
        if columns(line) == len(line):
            lines += textwrap.wrap(line, width, drop_whitespace=False) or [""]
            continue
        # By columns: words of such scripts are not told apart by spaces.
        row = ""
        for character in line:
            if columns(row + character) > width:
                lines.append(row)
                row = ""
            row += character
        lines.append(row)
    return lines


def _row(line: Line, width: int) -> str:
    points = f"{'-' if line.state == 'untested' else number(line.points)} of {number(line.most)}"
    start = f"  {_MARKS[line.state]:<4} {points:<11} {visible(line.id, 24, single=True):<12} "
    title = visible(line.title, 200, single=True)
    room = max(8, width - columns(start))
    if columns(title) > room:
        title = folded(title, room - 2)[0].rstrip() + " …"
    return start + title


def _between(left: str, right: str) -> str:
    return left + " " * max(1, WIDTH - columns(left) - columns(right)) + right


def _wrapped(text: str, width: int, before: str) -> list[str]:
    return [before + line for line in folded(text, width)] if text else []


def _in_full(line: Line) -> list[str]:
    said = [f"{visible(line.id, 24, single=True)}, first of what lacks points:"]
    for name, field in _ROWS:
        value = visible(getattr(line, field)).strip("\n")
        lines = folded(value, WIDTH - 12) if value else []
        said += [f"  {name if at == 0 else '':<9} {row}" for at, row in enumerate(lines)]
    if line.card:
        said += ["", *_card(visible(line.card, _CARD))]
    if line.printed:
        said += ["", "  the end of what it printed:"]
        said += _wrapped(visible(line.printed, _PRINTED, end=True).rstrip("\n"), WIDTH - 4, "    ")
    if line.message:
        said += ["", f"  message {visible(line.message, 60, single=True)}"]
    return said


def _card(text: str) -> list[str]:
    """Its lines are short but for what they quote; what is too long goes on below the second column."""
    said: list[str] = []
    for line in text.split("\n"):
        first, *rest = folded(line, WIDTH)
        said += [first, *_wrapped(" ".join(rest), WIDTH - 11, " " * 11)]
    return said
