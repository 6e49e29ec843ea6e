"""What a lab's text refers to: exercises, labs, files, links, its own helpers and predictions. All of it must be there.

Nothing is opened over a network: of a link to the web only its form is looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from paceline_course.content import Course, Lab
from paceline_course.masters import Cell

_EXERCISE = re.compile(r"\bL\d+[._]\d+\b")
_LAB = re.compile(r"\b[Ll]abs? (\d+)(?:(?:, \d+)* and (\d+))?")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE = re.compile(r"\b(?:docs|course|bench|examples)/[\w./-]*\w")
_WEB = re.compile(r"https://[\w-]+(\.[\w-]+)+(/\S*)?")


def dangling(course: Course, lab: Lab, cells: Sequence[Cell]) -> list[str]:
    """What a master refers to and what is not there, each said in a few words.

    Args:
        course: with all its labs.
        lab: whose master it is.
        cells: of the master; wrong answers included.
    """
    folder = course.lab_folder(lab)
    return [
        *(problem for cell in cells for problem in _names(course, cell.source)),
        *(problem for cell in cells for problem in _paths(folder, cell.source)),
        *_helpers(folder / "show.py", cells),
        *_predictions(cells),
    ]


def _names(course: Course, text: str) -> Iterator[str]:
    exercises = {each.id for lab in course.labs for each in lab.exercises}
    labs = {lab.id for lab in course.labs}
    for found in _EXERCISE.findall(text):
        if found.replace("_", ".") not in exercises:
            yield f"there is no exercise {found}"
    for numbers in _LAB.findall(text):
        yield from (f"there is no lab {number}" for number in numbers if number and f"L{number}" not in labs)


def _paths(folder: Path, text: str) -> Iterator[str]:
    """Links and names of files, which are meant from the repository's root or from the lab's folder."""
    roots = (folder, folder.parents[2])
    for path in _FILE.findall(text):
        # Texts name files from the repository's root, where `make course` runs.
        if not any((root / path).exists() for root in roots):
            yield f"there is no file {path}"
    for link in _LINK.findall(text):
        if link.startswith(("http:", "https:")):
            if not _WEB.fullmatch(link):
                yield f"{link} is no link"
        elif not any((root / link.partition("#")[0]).exists() for root in roots):
            yield f"the link {link} leads nowhere"


def _helpers(show: Path, cells: Iterable[Cell]) -> Iterator[str]:
    """`show.something` in a cell."""
    used = {name for cell in cells if not cell.is_text for name in re.findall(r"\bshow\.(\w+)\(", cell.source)}
    if not used:
        return
    tree = ast.parse(show.read_text(encoding="utf-8")) if show.is_file() else ast.Module([], [])
    known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    yield from (f"show.py has no {name}" for name in sorted(used - known))


def _predictions(cells: Iterable[Cell]) -> Iterator[str]:
    """Each is asked for before it is revealed, under the same name."""
    said: set[tuple[str, str]] = set()
    revealed: set[str] = set()
    for call in (call for cell in cells if not cell.is_text and not cell.part for call in _calls(cell.source)):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        key = str(call.args[0].value) if call.args and isinstance(call.args[0], ast.Constant) else ""
        words = [word.arg for word in call.keywords]
        if name == "predict":
            said |= {(key, str(word)) for word in words if word != "unit"}
        elif name == "reveal":
            revealed.add(key)
            yield from (f"{word} of {key} is revealed, and nobody was asked" for word in words
                        if word is not None and (key, word) not in said)  # fmt: skip
    yield from (f"what was said of {key} is never revealed" for key in sorted({key for key, _ in said} - revealed))


def _calls(source: str) -> Iterator[ast.Call]:
    """Of a cell, in order; a cell with magics has none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    yield from sorted(calls, key=lambda node: (node.lineno, node.col_offset))
