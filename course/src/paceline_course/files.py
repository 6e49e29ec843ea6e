"""The learner's files: what an exercise file looks like, and what of it is the learner's own.

An exercise has one file, `work/L4_2.py`, whether it is written in a notebook, an editor or over ssh. Its head says
what to do; the code begins below a line that is looked for by its text, so the head may be changed or deleted.
"""

from __future__ import annotations

from paceline_course.content import Exercise
from paceline_course.plain import plain, without_title

BEGINS = "# --- your code begins here ---"


def compose(exercise: Exercise, task: str, code: str) -> str:
    """A complete file.

    Args:
        exercise: whose.
        task: its task, Markdown.
        code: below the head, without a newline at its end.
    """
    lines = plain(without_title(task)).splitlines()
    head = [f"# {exercise.id} · {exercise.title}", "#", *(f"# {line}".rstrip() for line in lines), "#"]
    head += [f"# Check it:  paceline learn check {exercise.id}", f"# Stuck?     paceline learn hint {exercise.id}"]
    return "\n".join([*head, "", BEGINS, "", "", code, ""])


def code_of(text: str) -> str:
    """What stands below the head of a file, or all of it where there is no head; without blank lines around it."""
    _, found, below = text.partition(BEGINS)
    return (below if found else text).strip("\n").rstrip()


def first_line_of(text: str) -> int:
    """The line of the file at which `code_of` begins, 1 for the first."""
    head, found, below = text.partition(BEGINS)
    if not found:
        return 1 + len(text) - len(text.lstrip("\n"))
    return head.count("\n") + 1 + len(below) - len(below.lstrip("\n"))
