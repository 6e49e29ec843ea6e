"""What the id of a message means, in the words of the lab's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.learn.content import Course, Exercise
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from paceline.learn.checking import Message


def meaning(course: Course, exercise: Exercise, message: str) -> Message | None:
    """What it says of an answer; None where the course does not know it (any more)."""
    # Checks load torch, which takes seconds; a class in which nobody is stuck needs none of them.
    from paceline.learn.checking import load_checks
    from paceline.learn.messages import GENERAL

    try:
        said = load_checks(course, exercise).messages.get(message)
    except (PacelineError, ImportError):
        said = None
    return said or GENERAL.get(message)
