"""A deck as it is written: one Markdown file.

    +++
    title = "Why several devices"
    +++

    # First slide

    Text, lists, tables, code. {{value: regimes.steps.512}} is a measured number, {{cite: goyal2017}} a source.

    {{figure: efficiency}}

    ::: notes
    What is said.
    :::

    ---

    # Second slide

A figure stands below the text, or beside it: `{{figure: efficiency | side}}`. Numbers that nobody measured and nobody
published, those of an example, are said to be so: `{{example: two workers of 64 samples}}` in the notes.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from paceline.records.errors import PacelineError

_NOTES = re.compile(r"^::: notes\n(.*?)^:::[ ]*$", re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(r"^\{\{figure: *([\w.-]+) *(?:\| *(side|below) *)?\}\}[ ]*$", re.MULTILINE)
_EXAMPLE = re.compile(r"\{\{example: *([^}]+?) *\}\}")


@dataclass(frozen=True)
class Slide:
    """One slide as it is written.

    Attributes:
        number: from 1, in its deck.
        title: of one line.
        text: Markdown, with `{{value: ...}}` and `{{cite: ...}}` in it.
        figure: its name; empty for none.
        side: whether the figure stands beside the text.
        notes: what is said.
        example: what its unmeasured numbers are an example of; empty where it has none.
    """

    number: int
    title: str
    text: str
    figure: str
    side: bool
    notes: str
    example: str


@dataclass(frozen=True)
class Deck:
    """A deck as it is written.

    Attributes:
        name: of its file, without the ending.
        title: for people.
        slides: in order.
    """

    name: str
    title: str
    slides: tuple[Slide, ...]


def read_deck(path: Path) -> Deck:
    """The deck in a file.

    Raises:
        PacelineError: it cannot be read, has no title, or a slide is not made as it should be.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PacelineError(f"{path} cannot be read", why=error.strerror or str(error)) from error
    _, found, rest = text.partition("+++\n")
    front, closed, body = rest.partition("\n+++\n")
    if not found or not closed:
        raise PacelineError(f"{path} has no head", hint='begin it with +++, title = "...", +++')
    try:
        title = str(tomllib.loads(front)["title"])
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise PacelineError(f"{path} has no title", why=str(error)) from error
    parts = re.split(r"^---[ ]*$", body, flags=re.MULTILINE)
    return Deck(path.stem, title, tuple(_slide(path, number, part) for number, part in enumerate(parts, start=1)))


def _slide(path: Path, number: int, source: str) -> Slide:
    notes = "\n\n".join(found.strip() for found in _NOTES.findall(source))
    text = _NOTES.sub("", source).strip()
    heading, _, text = text.partition("\n")
    if not heading.startswith("# "):
        raise PacelineError(f"slide {number} of {path.name} has no title", hint="its first line is: # Title")
    figures = _FIGURE.findall(text)
    if len(figures) > 1:
        raise PacelineError(f"slide {number} of {path.name} has {len(figures)} figures", hint="one a slide")
    name, place = figures[0] if figures else ("", "")
    examples = _EXAMPLE.findall(notes)
    return Slide(
        number=number,
        title=heading.removeprefix("# ").strip(),
        text=_FIGURE.sub("", text).strip(),
        figure=name,
        side=place == "side",
        notes=_EXAMPLE.sub("", notes).strip(),
        example="; ".join(examples),
    )
