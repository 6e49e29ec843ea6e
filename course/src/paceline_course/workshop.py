"""The workshop by its own names: whoever knows the original finds every piece.

`lay_out` makes a folder with the original's notebooks, built from our labs; `as_page` makes docs/workshop.md, which
says for each of the original's topics where it is here. Both from `course/workshop.toml`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline_course.assess.task_folder import DEFAULT, notebook_text
from paceline_course.assess.task_folder import start as start_assessment
from paceline_course.content import Course, load_course
from paceline_course.masters import Cell, read_master
from paceline_course.notebooks import build
from paceline_course.workspace import start_workspace


class Piece(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A part of a lab: from one of its headings on, or until one."""

    lab: str
    from_: str = ""
    until: str = ""


class Notebook(msgspec.Struct, frozen=True, kw_only=True):
    """One notebook of the original."""

    name: str
    title: str
    pieces: list[Piece]


class WorkshopDeck(msgspec.Struct, frozen=True, kw_only=True):
    """One deck of the original."""

    name: str
    title: str
    deck: str
    """Ours from which it is built."""


class WorkshopAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """The original's assessment, whose notebook leads through ours."""

    name: str
    title: str


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One of the original's topics, and where it is here."""

    part: str
    topic: str
    lab: list[str]
    deck: str
    verb: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of the original's slides, and the slide that shows it here."""

    deck: str
    """Of the original."""
    topic: str
    ours: str
    """Our deck: D1 to D7."""
    slide: str
    """Its title."""


class Workshop(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    notebooks: list[Notebook]
    decks: list[WorkshopDeck]
    assessment: WorkshopAssessment
    topics: list[Topic]
    shown: list[Shown]


@cache
def load_workshop(course: Path) -> Workshop:
    """The map of the original.

    Args:
        course: folder of the course's content.

    Raises:
        PacelineError: it cannot be read.
    """
    path = course / "workshop.toml"
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Workshop)
    except (OSError, msgspec.MsgspecError) as error:
        raise PacelineError(f"{path} cannot be read", why=str(error)) from error


def lay_out(course: Course, folder: Path, tell: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Make the original's notebooks, their exercise files, the assessment's folder, and the decks; what was made.

    Args:
        course: whose.
        folder: new, or made by this.
        tell: is told of each deck, which takes seconds.

    Raises:
        PacelineError: the folder holds something else, or a deck cannot be built.
    """
    workshop = load_workshop(Path(course.folder))
    workspace = start_workspace(course, folder)
    made = []
    for notebook in workshop.notebooks:
        path = workspace.path / notebook.name
        if not path.exists():
            write_atomic(path, join(course, notebook).encode())
            made.append(path)
        for piece in notebook.pieces:
            for exercise in course.lab(piece.lab).exercises:
                if not workspace.file(exercise).exists():
                    write_atomic(workspace.file(exercise), workspace.starter(exercise).encode())
                    made.append(workspace.file(exercise))
    assessment = workspace.path / workshop.assessment.name
    if not assessment.exists():
        write_atomic(assessment, notebook_text().encode())
        made.append(assessment)
    made += start_assessment(workspace.path / DEFAULT)
    for each in workshop.decks:
        made += _deck(course, each, workspace.path / "slides", tell)
    readme = workspace.path / "README.md"
    if not readme.exists():
        write_atomic(readme, _readme(workshop).encode())
        made.append(readme)
    return made


def _deck(course: Course, wanted: WorkshopDeck, folder: Path, tell: Callable[[str], None]) -> list[Path]:
    """The deck under its name there, to be shown and to be edited; what was made."""
    from paceline_course.slides.build import build

    missing = [folder / f"{wanted.name}{ending}" for ending in (".html", ".pptx")]
    if all(path.exists() for path in missing):
        return []
    tell(f"{wanted.name}: {wanted.title}")
    with tempfile.TemporaryDirectory(prefix="paceline-slides-") as scratch:
        (built,) = build(course, [wanted.deck], ["html", "pptx"], Path(scratch), look=False)
        folder.mkdir(exist_ok=True)
        made = []
        for path in built.files:
            target = folder / f"{wanted.name}{path.suffix}"
            if not target.exists():
                write_atomic(target, path.read_bytes())
                made.append(target)
    return made


def join(course: Course, notebook: Notebook) -> str:
    """One notebook from pieces of labs, as its file has it."""
    cells: list[dict[str, Any]] = []
    metadata: dict[str, Any] = {}
    for piece in notebook.pieces:
        lab = course.lab(piece.lab)
        parts = cut(read_master(course.lab_folder(lab) / "lab.py"), piece)
        body = json.loads(build(lab, parts))
        cells += body.pop("cells")
        metadata = body
    title = {"cell_type": "markdown", "metadata": {}, "source": [f"# {notebook.title}"], "id": "title"}
    for number, cell in enumerate(cells):
        cell["id"] = f"{cell['id']}-{number}"
    return json.dumps({"cells": [title, *cells], **metadata}, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def cut(cells: Sequence[Cell], piece: Piece) -> list[Cell]:
    """The cells of a piece, always with the lab's first code cell, which loads what the others use.

    Raises:
        PacelineError: the lab has no such heading.
    """
    first = next(index for index, cell in enumerate(cells) if not cell.is_text)
    start = _heading(cells, piece.from_, piece.lab) if piece.from_ else 0
    end = _heading(cells, piece.until, piece.lab) if piece.until else len(cells)
    return [*([cells[first]] if start > first else []), *cells[start:end]]


def as_page(course: Course) -> str:
    """course/docs/workshop.md."""
    workshop = load_workshop(Path(course.folder))
    lines = [
        "# The workshop, piece by piece",
        "",
        'Where each topic of the workshop "Data Parallelism: How to Train Deep Learning Models on Multiple GPUs" is',
        "here, in our words. Made from `course/workshop.toml` by `python -m paceline_course.workshop`.",
        "",
        "`paceline learn workshop DIR` lays out the original's notebooks and decks, made of ours:",
        "",
        "| piece | from |",
        "|---|---|",
        *(f"| `{each.name}` | {_pieces(each)} |" for each in workshop.notebooks),
        *(f"| `slides/{each.name}.html`, `.pptx` | {each.deck} |" for each in workshop.decks),
        f"| `{workshop.assessment.name}` and `{DEFAULT}/` | the assessment |",
        "",
        "| where | topic | lab | deck | verb |",
        "|---|---|---|---|---|",
        *(
            f"| {each.part} | {each.topic} | {', '.join(each.lab)} | {each.deck} | `paceline {each.verb}` |"
            for each in workshop.topics
        ),
        "",
        "Topics of the original's slides, and the slide that shows each:",
        "",
        "| deck | topic | ours | slide |",
        "|---|---|---|---|",
        *(f"| {each.deck} | {each.topic} | {each.ours} | {each.slide} |" for each in workshop.shown),
    ]
    return "\n".join(lines) + "\n"


def _pieces(notebook: Notebook) -> str:
    def said(piece: Piece) -> str:
        until = f' until "{piece.until}"' if piece.until else ""
        begin = f' from "{piece.from_}" on' if piece.from_ else ""
        return f"{piece.lab}{until}{begin}"

    return ", ".join(said(piece) for piece in notebook.pieces)


def _heading(cells: Sequence[Cell], heading: str, lab: str) -> int:
    for index, cell in enumerate(cells):
        if cell.is_text and cell.source.lstrip("# ").startswith(heading):
            return index
    raise PacelineError(f"{lab} has no heading {heading}", hint="course/workshop.toml names one")


def _readme(workshop: Workshop) -> str:
    lines = ["# The workshop's pieces, from Paceline's course", ""]
    lines += [f"- `{each.name}`: {each.title}" for each in workshop.notebooks]
    lines += [f"- `slides/{each.name}.html` and `.pptx`: {each.title}" for each in workshop.decks]
    lines.append(f"- `{workshop.assessment.name}`: {workshop.assessment.title}; its files are in `{DEFAULT}/`")
    lines += [
        "",
        "Exercises are in `work/`; `paceline learn check L1.1` checks one, `paceline learn status` counts.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Write docs/workshop.md of this checkout."""
    course = load_course()
    page = Path(course.folder) / "docs" / "workshop.md"
    write_atomic(page, as_page(course).encode())
    sys.stdout.write(f"written: {page}\n")


if __name__ == "__main__":
    main()
