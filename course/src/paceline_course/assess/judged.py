"""From what a judge says to a line of the grade: all points, some, or none and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paceline.records.errors import PacelineError
from paceline_course.assess.correctness.runs import Failed
from paceline_course.assess.grade import Line
from paceline_course.assess.messages import MESSAGES
from paceline_course.assess.rubric import RubricLine
from paceline_course.checking import Wrong

_MOST = 2000
"""Characters of a text that comes from a submission."""


@dataclass(frozen=True)
class Scored:
    """What a judge found who gives parts of the points.

    Attributes:
        share: of the points, 0 to 1.
        message: id, where the share is below 1.
        ran, expected, got: in words.
        evidence: numbers behind it.
    """

    share: float
    message: str = ""
    ran: str = ""
    expected: str = ""
    got: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)


def judged(line: RubricLine, judge: Callable[[], dict[str, Any] | Scored]) -> Line:
    """Call a judge; what it finds, or what it finds wrong, becomes the line. Any other error is a defect of ours.

    Args:
        line: of the rubric.
        judge: raises `Wrong`, or returns the evidence for all points, or a score.
    """
    began = time.monotonic()
    try:
        found = judge()
    except Wrong as wrong:
        return _line(
            line, time.monotonic() - began, Scored(0.0, wrong.message, wrong.ran, wrong.expected, wrong.got), wrong
        )
    scored = found if isinstance(found, Scored) else Scored(1.0, evidence=found)
    return _line(line, time.monotonic() - began, scored, None)


def _line(line: RubricLine, seconds: float, scored: Scored, wrong: Wrong | None) -> Line:
    full = scored.share >= 1.0
    message = MESSAGES.get(scored.message)
    if not full and message is None:
        raise PacelineError(
            f"there is no message {scored.message}", hint="a defect of the assessment: please report it"
        )
    where = f" ({wrong.where})" if wrong is not None and wrong.where else ""
    return Line(
        id=line.id,
        title=line.title,
        most=line.points,
        points=round(line.points * min(1.0, max(0.0, scored.share)), 1),
        gate=line.gate,
        state="passed" if full else "partly" if scored.share > 0 else "failed",
        message="" if full else scored.message,
        ran=scored.ran[:_MOST],
        expected=scored.expected[:_MOST],
        got=f"{scored.got}{where}"[:_MOST],
        likely=message.likely if message is not None and not full else "",
        look=message.look if message is not None and not full else "",
        card=wrong.card[:_MOST] if isinstance(wrong, Failed) else "",
        printed=wrong.printed[:_MOST] if isinstance(wrong, Failed) else "",
        evidence=scored.evidence,
        seconds=round(seconds, 2),
    )


def share_between(value: float, good: float, bad: float) -> float:
    """1 at `good` and beyond, 0 at `bad` and beyond, evenly in between; `good` may be above or below `bad`."""
    return min(1.0, max(0.0, (value - bad) / (good - bad)))
