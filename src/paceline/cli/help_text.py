"""Help as text: one layout for the program, its groups and its commands. Imports neither typer nor rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.records.wrap import WIDEST, columns, wrap

Row = tuple[str, str]
"""What is typed, and what it does."""

_LONGEST_NAME = 24
_STACKED_BELOW = 60


def help_text(
    usage: str, text: str, examples: Sequence[str], sections: Sequence[tuple[str, Sequence[Row]]], width: int = 0
) -> str:
    """A whole page of help.

    Args:
        usage: what follows `Usage:`; several forms stand in lines of their own.
        text: paragraphs, separated by empty lines; lines that are indented stay as they are.
        examples: commands as they are typed.
        sections: titles with their rows, in order.
        width: columns; 0 takes the terminal's, up to `WIDEST`.
    """
    width = width or min(columns(), WIDEST)
    lines = [line for form in usage.split("\n") for line in wrap(form, width, "       ")]
    lines[0] = "Usage:" + lines[0][6:]
    for block in text.strip().split("\n\n"):
        lines += ["", *_paragraph(block, width)]
    if examples:
        lines += ["", "Examples:" if len(examples) > 1 else "Example:"]
        lines += [line for example in examples for line in _command(example, width)]
    for title, rows in sections:
        if rows:
            lines += ["", *wrap(f"{title}:", width), *_definitions(rows, width)]
    return "\n".join(lines) + "\n"


def _command(example: str, width: int) -> list[str]:
    """A command that can be copied whole: continued lines end in a backslash."""
    lines = wrap(example, width, "  ", "      ")
    if len(lines) > 1:
        lines = wrap(example, width - 2, "  ", "      ")
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _paragraph(block: str, width: int) -> list[str]:
    lines = block.strip("\n").split("\n")
    if lines[0].startswith("    "):
        return [f"  {line[4:].rstrip()}" for line in lines]
    return wrap(block, width)


def _definitions(rows: Iterable[Row], width: int) -> list[str]:
    rows = list(rows)
    if width < _STACKED_BELOW:
        return [line for name, text in rows for line in (f"  {name}", *wrap(text, width, "      "))]
    column = min(max(len(name) for name, _ in rows), _LONGEST_NAME) + 4
    lines = []
    for name, text in rows:
        head = f"  {name}"
        if len(head) + 2 > column:
            lines += [head, *wrap(text, width, " " * column)]
        else:
            lines += wrap(text, width, head.ljust(column))
    return lines
