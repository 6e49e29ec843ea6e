"""Lines of the rubric for the page: what to do next as cards, and all of them as a table."""

from __future__ import annotations

import re
from typing import Any

from paceline.report import words
from paceline_course.assess.grade import PARTS, Grade, Line
from paceline_course.assess.page.evidence import shown
from paceline_course.assess.text import (
    by_part,
    number,
    state_in_words,
    total,
    visible,
    why_untested,
)

_LONG = 1200
_PRINTED = 4000
_CARD = 6000
_RULES = re.compile(r"^-+$\n?| -{2,}$", re.MULTILINE)
"""Rows of dashes that frame a card in a terminal: on a narrow page they would break."""
_FIELDS = (("What was run", "ran"), ("Expected", "expected"), ("Got", "got"))
_ADVICE = (("Likely", "likely"), ("Look at", "look"))


def cards(grade: Grade) -> list[dict[str, Any]]:
    """The lines that lack points, worst first: those that close the gate, then by points lost."""
    lacking = [(at, line) for at, line in enumerate(grade.lines) if line.state in ("failed", "partly")]
    lacking.sort(key=lambda each: (not each[1].gate, each[1].points - each[1].most))
    return [_card(at, line) for at, line in lacking]


def groups(grade: Grade) -> list[dict[str, Any]]:
    """Parts with their rows for the table."""
    places = {id(line): at for at, line in enumerate(grade.lines)}
    found = []
    for letter, lines in by_part(grade):
        points, most = total(lines)
        first = next((line for line in lines if line.state == "untested"), None)
        rows = [_table_row(places[id(line)], line, grade) for line in lines]
        found.append(
            {
                "name": part_name(letter),
                # Why lines were not judged is said once a part, below the first of them.
                "told_at": lines.index(first) if first else -1,
                "reason": why_untested(grade, first) if first else "",
                "points": f"{number(points)} of {number(most)}",
                "rows": rows,
            }
        )
    return found


def bars(grade: Grade) -> list[dict[str, Any]]:
    """A bar a part: points, points of lines that were not judged, as shares of the part and of the whole."""
    whole = sum(line.most for line in grade.lines) or 1.0
    found = []
    for letter, lines in by_part(grade):
        points, most = total(lines)
        untested = sum(line.most for line in lines if line.state == "untested")
        found.append(
            {
                "letter": letter[:1] if points > 0.03 * whole else "",
                "name": part_name(letter),
                "points": f"{number(points)} of {number(most)}",
                "detail": f"{number(untested)} of them not judged" if untested else "",
                "width": _percent(points, most),
                "untested": _percent(untested, most),
                "of_all": _percent(points, whole),
            }
        )
    return found


def part_name(letter: str) -> str:
    """A Correctness."""
    return f"{visible(letter, 24, single=True)} {PARTS.get(letter, '')}".strip()


def _card(at: int, line: Line) -> dict[str, Any]:
    return {
        "id": f"do-{at}",
        "name": visible(line.id, 60, single=True),
        "title": visible(line.title, 300, single=True),
        "state": line.state,
        "gate": line.gate,
        "points": f"{number(line.points)} of {number(line.most)} points",
        "facts": _texts(line, _FIELDS),
        "advice": _texts(line, _ADVICE),
        "card": _RULES.sub("", visible(line.card, _CARD)).strip("\n"),
        "printed": visible(line.printed, _PRINTED, end=True).strip("\n"),
        "message": visible(line.message, 60, single=True),
    }


def _table_row(at: int, line: Line, grade: Grade) -> dict[str, Any]:
    lacking = line.state in ("failed", "partly")
    evidence = shown(line.evidence)
    facts = [] if lacking else _texts(line, _FIELDS)
    return {
        "name": visible(line.id, 60, single=True),
        "title": visible(line.title, 300, single=True),
        "gate": line.gate,
        "state": line.state,
        "state_words": state_in_words(line, grade.complete),
        "points": f"{'–' if line.state == 'untested' else number(line.points)} of {number(line.most)}",
        "seconds": words.duration(line.seconds) if line.seconds else "",
        "card": f"#do-{at}" if lacking else "",
        "facts": facts + evidence.facts,
        "tables": evidence.tables,
    }


def _texts(line: Line, fields: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    found = [(label, visible(getattr(line, name), _LONG).strip("\n")) for label, name in fields]
    return [(label, text) for label, text in found if text]


def _percent(part: float, whole: float) -> str:
    return f"{max(0.0, min(100.0, 100 * part / whole)) if whole else 0:.2f}"
