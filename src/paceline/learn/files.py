"""The learner's files: what an exercise file looks like, and what of it is the learner's own.

An exercise has one file, `work/L4_2.py`, whether it is written in a notebook, an editor or over ssh. Its head says
what to do; the code begins below a line that is looked for by its text, so the head may be changed or deleted.
"""

from __future__ import annotations

import re
import textwrap

from paceline.learn.content import Exercise

BEGINS = "# --- your code begins here ---"
_WIDTH = 96
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def compose(exercise: Exercise, task: str, code: str) -> str:
    """A complete file.

    Args:
        exercise: whose.
        task: its task, Markdown.
        code: below the head, without a newline at its end.
    """
    head = [f"# {exercise.id} · {exercise.title}", "#", *_comment(task), "#"]
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


def _comment(markdown: str) -> list[str]:
    """Markdown as comment lines: headings, emphasis and links become plain text, code keeps its form."""
    lines: list[str] = []
    in_code = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            continue
        if in_code:
            lines.append(f"#     {line}".rstrip())
            continue
        plain = _LINK.sub(r"\1", re.sub(r"\*\*|^#+ ", "", line))
        indent = "  " if plain.startswith(("- ", "* ")) else ""
        wrapped = textwrap.wrap(plain, _WIDTH, subsequent_indent=indent, break_long_words=False) or [""]
        lines += [f"# {each}".rstrip() for each in wrapped]
    return lines
