"""Lines that fit a width, broken at spaces only. Imports next to nothing: root help is made with it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would cost a tenth of the time that help may take
if TYPE_CHECKING:
    from collections.abc import Sequence

WIDEST = 110
"""Help is not drawn wider: long lines are hard to read."""
NARROW = 60
"""Below so many columns nothing stands side by side."""
CARD = 80
"""A card of plain text is not drawn wider."""


def columns(unknown: int = 80) -> int:
    """Width of the terminal: $COLUMNS, else what the terminal says, else `unknown`."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    for stream in (sys.__stdout__, sys.__stderr__):
        try:
            found = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
        except (OSError, ValueError):
            continue
        if found > 0:
            return found
    return unknown


def wrap(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Words of `text` in lines of at most `width` characters; a word that is longer has a line of its own.

    Args:
        text: words separated by white space.
        width: of a line, indentation included.
        first: what the first line begins with.
        rest: what all others begin with; None is as many spaces as `first` is long.
    """
    rest = " " * len(first) if rest is None else rest
    lines = [first]
    empty = True
    for word in text.split():
        headed = len(lines) == 1 and len(first.strip()) > 0 and len(rest) < len(first)
        if (not empty or headed) and len(lines[-1].rstrip()) + 1 + len(word) > width:
            lines.append(rest)
            empty = True
        lines[-1] += word if empty else f" {word}"
        empty = False
    return [line.rstrip() for line in lines]


def text_card(title: str, rows: Sequence[tuple[str, str]], *, label: int = 8, width: int | None = None) -> str:
    """A card of plain text between two rules, without a newline at the end.

    Args:
        title: in the first rule.
        rows: label and text of each; one without a label belongs to the one before.
        label: characters that a label takes, with what is between it and the text.
        width: columns that there are, at which texts are wrapped; below `NARROW` a text stands behind its label. None
            leaves each row on one line.
    """
    rule = min(width or CARD, CARD)
    if width is not None and width < NARROW:
        lines = wrap(f"-- {title}", width)
        for name, text in rows:
            lines += wrap(f"{name}: {text}" if name else f"  {text}", width, "", "  ")
        return "\n".join([*lines, "-" * rule])
    lines = [f"-- {title} ".ljust(rule, "-")]
    for name, text in rows:
        head = f"  {name:<{label}}"
        lines += [f"{head}{text}".rstrip()] if width is None else wrap(text, width, head)
    return "\n".join([*lines, "-" * rule])


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
