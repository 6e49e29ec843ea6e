"""What the grader is proved with: submissions that are right, each in its own way, and such that are wrong.

    course/tests/proof/submitted/right/NAME/     whole submissions
    course/tests/proof/submitted/wrong/*.py      WRONG = [Wrong(...), ...]: a right one with a few edits

A wrong one names the line of the rubric that has to fail, and what the learner has to be told. It holds one mistake, as
people make it, or one attempt to get points without doing the work. `python -m course.tests.proof.matrix` grades all
of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline_course.answer_process import load_file
from paceline_course.assess.rubric import content_folder
from paceline_course.assess.submission import PROGRAM

CHEAT, TRAP = "cheat", "trap"
"""Kinds of `Wrong` beside the ids of faults: an attempt to deceive; something right that looks wrong."""
REFUSED = "refused"
"""Stands for a line where a submission has to be refused before anything of it runs."""
LAST_GATE = "A.resume"

Edit = tuple[str, str, str]
Content = str | bytes | Callable[[], str | bytes]


@dataclass(frozen=True)
class Wrong:
    """A submission that is not as it should be.

    Attributes:
        name: of it.
        line: that has to fail; None where the gate has to pass, since what was done has no effect or is right.
        messages: ids, one of which the line has to have; texts, one of which has to stand in a refusal.
        base: name of the right submission that is edited.
        edits: (file, old text that stands there exactly once, new text).
        fault: id of the fault in the catalogue of faults, "cheat" or "trap".
        why: what is wrong with it, or why it is not; one sentence.
        files: more files, by name; a function is called for what is too large to stand here.
        links: symbolic links, by name.
        also: lines that may fail instead, earlier, depending on what is drawn.
        patience: factor on the time limits of the grader; below 1 where a run never ends.
        attacks_user: it harms whatever runs as the same user, so that only root may grade it, who gives it one.
    """

    name: str
    line: str | None
    messages: tuple[str, ...]
    base: str = "ddp"
    edits: tuple[Edit, ...] = ()
    fault: str = CHEAT
    why: str = ""
    files: Mapping[str, Content] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    patience: float = 1.0
    attacks_user: bool = False

    @property
    def until(self) -> str:
        """The last line that has to be judged to know."""
        return LAST_GATE if self.line is None else self.line


def program(old: str, new: str) -> Edit:
    """An edit of train.py."""
    return (PROGRAM, old, new)


SOLUTION = "ddp"
"""Name of our own solution among the right submissions."""


def proof_folder() -> Path:
    """Where they stand."""
    return Path(__file__).parent / "submitted"


def right_names() -> list[str]:
    """Names of the right submissions."""
    return sorted([SOLUTION, *(path.parent.name for path in (proof_folder() / "right").glob(f"*/{PROGRAM}"))])


def right_folder(name: str) -> Path:
    """Where a right one stands."""
    return content_folder() / "solution" if name == SOLUTION else proof_folder() / "right" / name


@cache
def wrongs() -> tuple[Wrong, ...]:
    """All wrong ones, in the order of their files."""
    found: list[Wrong] = []
    for path in sorted((proof_folder() / "wrong").glob("*.py")):
        found += load_file(path, f"paceline_assessment_wrong_{path.stem}").WRONG
    return tuple(found)


def build(wrong: Wrong, folder: Path) -> None:
    """Write the submission into a new folder.

    Raises:
        PacelineError: an edit does not fit.
    """
    shutil.copytree(right_folder(wrong.base), folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in wrong.edits:
        path = folder / name
        text = path.read_text(encoding="utf-8")
        if (count := text.count(old)) != 1:
            raise PacelineError(
                f"{wrong.name}: an edit does not fit {wrong.base}/{name}",
                why=f"its old text stands there {count} times: {old.strip().splitlines()[0][:80]}",
            )
        path.write_text(text.replace(old, new), encoding="utf-8")
    for name, content in wrong.files.items():
        said = content() if callable(content) else content
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(said.encode() if isinstance(said, str) else said)
    for name, target in wrong.links.items():
        path = folder / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)
