"""A grade as one HTML page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from paceline.records.rundir import write_atomic
from paceline.report import words
from paceline.report.page.shell import Parts, render
from paceline_course.assess.grade import Grade
from paceline_course.assess.page import curves as figures
from paceline_course.assess.page import lines
from paceline_course.assess.text import (
    gate_in_words,
    head,
    number,
    untested_in_words,
    visible,
)

_PARTS = Parts(Path(__file__).parent, "grade.html.j2", "grade.js", "grade.css", kind="grading")
_TITLES = {"merit": "Merit", "passed": "Passed", "failed": "Failed"}


def render_grade(grade: Grade) -> str:
    """One self-contained page."""
    curves = figures.drawn(grade)
    word = _TITLES[grade.result]
    return render(
        _PARTS,
        f"{word}: {number(grade.points)} of 100 points",
        figures.payload(curves, grade.target),
        word=word,
        opening=_opening(grade),
        bars=lines.bars(grade),
        cards=lines.cards(grade),
        groups=lines.groups(grade),
        figures=_figures(grade, curves),
        trust=_trust(grade),
        again=_again(grade),
    )


def write_page(grade: Grade, path: Path) -> None:
    """Write the page whole or not at all.

    Raises:
        PacelineError: it cannot be written; an older page of that name is untouched.
    """
    write_atomic(path, render_grade(grade).encode())


def _opening(grade: Grade) -> dict[str, Any]:
    return {
        "result": grade.result,
        "head": head(grade),
        "points": number(grade.points),
        "points_words": _points_words(grade),
        "gate": _sentence(gate_in_words(grade)),
        "gate_open": grade.gate,
        "untested": _sentence(untested_in_words(grade)),
        "practice": grade.kind == "practice",
        "pass_points": grade.pass_points,
        "merit_points": grade.merit_points,
        "pass_at": _percent(grade.pass_points),
        "merit_at": _percent(grade.merit_points),
    }


def _points_words(grade: Grade) -> str:
    if grade.result == "merit":
        return f"Merit is given from {grade.merit_points}."
    if grade.result == "passed":
        return f"{number(grade.merit_points - grade.points)} more and it is with merit."
    if grade.points >= grade.pass_points:
        return f"Enough to pass, which takes {grade.pass_points}, but the gate is closed."
    return f"{number(grade.pass_points - grade.points)} short of the {grade.pass_points} that pass."


def _figures(grade: Grade, curves: list[figures.Drawn]) -> dict[str, Any] | None:
    if not curves:
        return None
    left = len(grade.curves) - len(curves)
    return {
        "legend": figures.legend(curves),
        "several": len({one.own.name for one in curves}) > 1,
        "chosen": any(one.own.chosen for one in curves),
        "target": words.share(grade.target) if grade.target > 0 else "",
        "accuracy": figures.accuracy_table(curves),
        "samples": figures.target_table(curves),
        "left": f"{words.plural(left, 'more training')} in grade.json." if left else "",
    }


def _trust(grade: Grade) -> dict[str, Any]:
    digests = [
        ("submission", _short(grade.submission)),
        ("grader", _short(grade.grader)),
        ("drawn afterwards" if grade.kind == "final" else "number", _short(grade.nonce) or "nothing"),
        ("course", visible(grade.course, 60, single=True)),
    ]
    return {
        "digests": digests,
        "seeds": [(visible(name, 40, single=True), str(seed)) for name, seed in list(grade.seeds.items())[:60]],
        "machine": [
            (visible(name, 40, single=True), visible(value, 200, single=True))
            for name, value in list(grade.machine.items())[:40]
        ],
        "gaps": [visible(gap, 400, single=True) for gap in grade.gaps[:40]],
        "fresh": bool(grade.nonce) and grade.kind == "final",
    }


def _again(grade: Grade) -> list[tuple[str, str]]:
    practice = "paceline learn assess --practice"
    rows = [("After a change, as often as you like", practice)]
    if seed := _number(grade):
        rows.append(("The same numbers again", f"{practice} --seed {seed}"))
    if not grade.complete:
        rows.append(("Every line, also behind a gate line that failed", f"{practice} --all"))
    rows.append(("The one that counts: fresh seeds", "paceline learn assess --final"))
    return rows


def _number(grade: Grade) -> str:
    """The number that repeats a practice, given or drawn; empty where there is none, as in a final."""
    found = re.fullmatch(r"practice-(\d{1,20})", grade.nonce)
    return found[1] if found else ""


def _short(digest: str) -> str:
    """The first and last digits; grade.json holds all of them."""
    clean = visible(digest, 200, single=True)
    return clean if len(clean) <= 24 else f"{clean[:12]}…{clean[-8:]}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""


def _percent(points: float) -> str:
    return f"{max(0.0, min(100.0, points)):.2f}"
