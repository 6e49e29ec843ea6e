"""What the id of a message means, in the words of the lab's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.records.errors import PacelineError
from paceline_course.content import Course, Exercise

if TYPE_CHECKING:
    from paceline_course.checking import Message


def meaning(course: Course, exercise: Exercise, message: str) -> Message | None:
    """What it says of an answer; None where the course does not know it (any more)."""
    # Checks load torch, which takes seconds; a class in which nobody is stuck needs none of them.
    from paceline_course.checking import load_checks
    from paceline_course.messages import GENERAL

    try:
        said = load_checks(course, exercise).messages.get(message)
    except (PacelineError, ImportError):
        said = None
    return said or GENERAL.get(message)
