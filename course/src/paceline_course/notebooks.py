"""From masters to what learners read: notebooks, one in which the solutions stand, and text. Built, never edited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from paceline_course.content import Lab
from paceline_course.masters import Cell, material

_HIDDEN = ("hint", "solution", "explanation", "wrong")
_FORMAT = {"nbformat": 4, "nbformat_minor": 5}
_KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def build(lab: Lab, cells: Sequence[Cell], *, solved: bool = False) -> str:
    """A notebook as its file has it; the same cells give the same bytes.

    Args:
        lab: whose.
        cells: of its master.
        solved: with solutions in the place of starters.
    """
    parts = material(cells)
    made: list[dict[str, Any]] = []
    for cell in cells:
        if cell.part in _HIDDEN:
            continue
        if cell.part == "starter":
            code = parts[cell.exercise].solution if solved else parts[cell.exercise].starter
            made.append(_code(f"%%exercise {cell.exercise}\n{code}", cell.tags))
            made.append(_code(f'check("{cell.exercise}")', ()))
        elif cell.is_text:
            made.append({"cell_type": "markdown", "metadata": {}, "source": _lines(cell.source)})
        else:
            made.append(_code(cell.source, cell.tags))
    for number, each in enumerate(made):
        each["id"] = f"{lab.id}-{number}"
    body = {"cells": made, "metadata": {"kernelspec": _KERNEL, "paceline": {"lab": lab.id}}, **_FORMAT}
    return json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def text(lab: Lab, cells: Sequence[Cell]) -> str:
    """The lab as Markdown: all that is read, and the code of the experiments; exercises stand in their files.

    Args:
        lab: whose.
        cells: of its master.
    """
    made = [
        f"*{lab.id}, to read. Answers go into `work/`, one file an exercise; `{lab.notebook_name}` is the same as a "
        "notebook, which also runs the experiments and draws their figures.*"
    ]
    for cell in cells:
        if cell.part in _HIDDEN:
            continue
        if cell.part == "starter":
            file = cell.exercise.replace(".", "_")
            made.append(
                f"Write it in `work/{file}.py`, then: `paceline learn check {cell.exercise}`. What follows in Python "
                f"begins with `from work.{file} import *`."
            )
        else:
            made.append(cell.source if cell.is_text else f"```python\n{cell.source}\n```")
    return "\n\n".join(made) + "\n"


def _code(source: str, tags: Iterable[str]) -> dict[str, Any]:
    metadata = {"tags": list(tags)} if tags else {}
    return {"cell_type": "code", "metadata": metadata, "source": _lines(source), "outputs": [], "execution_count": None}


def _lines(source: str) -> list[str]:
    return source.splitlines(keepends=True)
