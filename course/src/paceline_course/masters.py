"""Masters: one jupytext file a lab holds its text, and of each exercise the task, starter, hints, solution and traps.

A cell says in its header what it is: `# %% exercise="L4.2" part="starter"`. Parts are

- `task` (text): what to write, and when it is done
- `starter` (code): what the learner begins with
- `hint` (text): three of them, from a question to nearly the line
- `solution` (code) and `explanation` (text): shown once it is solved, or all hints are taken
- `wrong` (code): an answer that the check has to reject, with the message that `expects` names

Cells without a part are the lab's own text and code. Two kinds of code are written down only once:

- `# the file toy.py` stands for that file, beside the master, and `# the file toy.py, but` for a change of it
- `# the solution, but` begins a starter or a wrong answer as a change of the solution

In a change `# - line` names a line, which goes, and `# + line` what comes in its place, with the same indentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from paceline.records.errors import PacelineError

PARTS = ("task", "starter", "hint", "solution", "explanation", "wrong")
HINTS = 3
_CHANGE = "# the solution, but"
_FILE = "# the file "
LEAST_WRONG = 3


@dataclass(frozen=True)
class Cell:
    """One cell of a master.

    Attributes:
        source: without a newline at its end.
        is_text: Markdown; else code.
        exercise: whose part it is; empty for the lab's own cells.
        part: of `PARTS`, or empty.
        expects: of a wrong answer, the id of the message.
        tags: further words from its header.
    """

    source: str
    is_text: bool
    exercise: str = ""
    part: str = ""
    expects: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class WrongAnswer:
    """An answer that has to be rejected.

    Attributes:
        expects: the id of the message.
        source: of the file.
    """

    expects: str
    source: str


@dataclass
class Material:
    """All parts of one exercise."""

    task: str = ""
    starter: str = ""
    starter_expects: str = "todo"
    solution: str = ""
    explanation: str = ""
    hints: list[str] = field(default_factory=list)
    wrong: list[WrongAnswer] = field(default_factory=list)


@cache
def read_master(path: Path) -> tuple[Cell, ...]:
    """The cells of a master, in order.

    Raises:
        PacelineError: it cannot be read, or a header names a part that does not exist.
    """
    jupytext = _jupytext()
    try:
        notebook = jupytext.read(path, fmt="py:percent")
    except (OSError, ValueError) as error:
        raise PacelineError(f"{path} cannot be read", why=str(error)) from error
    cells = []
    for raw in notebook.cells:
        about = raw.metadata
        part = about.get("part", "")
        if part and (part not in PARTS or not about.get("exercise")):
            raise PacelineError(f"{path}: a cell is called {part}", hint=f"an exercise, and one of {', '.join(PARTS)}")
        cells.append(
            Cell(
                source=_written_out(raw.source, path),
                is_text=raw.cell_type == "markdown",
                exercise=about.get("exercise", ""),
                part=part,
                expects=about.get("expects", ""),
                tags=tuple(about.get("tags", ())),
            )
        )
    return tuple(cells)


def material(cells: Iterable[Cell]) -> dict[str, Material]:
    """The parts of each exercise, by its id."""
    found: dict[str, Material] = {}
    # Starters and wrong answers may be changes of the solution, so that comes first.
    for cell in sorted((cell for cell in cells if cell.part), key=lambda cell: cell.part in ("starter", "wrong")):
        of = found.setdefault(cell.exercise, Material())
        if cell.part == "hint":
            of.hints.append(cell.source)
        elif cell.part == "wrong":
            of.wrong.append(WrongAnswer(cell.expects, changed(of.solution, cell.source)))
        elif cell.part == "starter":
            of.starter = changed(of.solution, cell.source)
            of.starter_expects = cell.expects or of.starter_expects
        else:
            setattr(of, cell.part, cell.source)
    return found


def changed(solution: str, source: str) -> str:
    """A cell's code, written out where it is a change of the solution."""
    first, *edits = source.splitlines() or [""]
    return edited(solution, edits) if first.strip() == _CHANGE else source


def edited(code: str, edits: Sequence[str]) -> str:
    """Code with some of its lines taken out and others put in their place.

    A line that stands several times in the code is the next one behind the change before it.

    Raises:
        PacelineError: a line that is to go is not there, or, in the first change, not only once.
    """
    lines = code.splitlines()
    place, indent = 0, ""
    for number, line in enumerate(edits):
        sign, text = line[2:4].strip(), line[4:].rstrip()
        if sign == "-":
            places = [at for at, each in enumerate(lines) if each.strip() == text.strip()]
            if len(places) > 1 and number:
                places = [at for at in places if at >= place][:1]
            if len(places) != 1:
                raise PacelineError(f"a master changes the line {text!r}, which stands {len(places)} times in the code")
            place = places[0]
            indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
            del lines[place]
        elif sign == "+":
            lines.insert(place, f"{indent}{text}")
            place += 1
    return "\n".join(lines)


def lacking(found: Material) -> list[str]:
    """What an exercise lacks to be complete."""
    said = [part for part in ("task", "starter", "solution", "explanation") if not getattr(found, part)]
    if "done when" not in found.task.lower():
        said.append('a line "Done when" in its task')
    if len(found.hints) != HINTS:
        said.append(f"{HINTS} hints (it has {len(found.hints)})")
    if len(found.wrong) < LEAST_WRONG:
        said.append(f"{LEAST_WRONG} wrong answers (it has {len(found.wrong)})")
    if any(not each.expects for each in found.wrong):
        said.append("the message that each wrong answer expects")
    return said


def _written_out(source: str, master: Path) -> str:
    if not source.startswith(_FILE):
        return source
    first, *edits = source.splitlines()
    path = master.with_name(first.removeprefix(_FILE).removesuffix(", but").strip())
    try:
        return edited(path.read_text(encoding="utf-8").rstrip(), edits)
    except OSError as error:
        raise PacelineError(f"{master} names {path.name}, which is not there", why=str(error)) from error


def _jupytext() -> Any:
    try:
        import jupytext
    except ImportError as error:
        raise PacelineError("the course needs libraries that are not installed", hint="pip install ./course") from error
    return jupytext
