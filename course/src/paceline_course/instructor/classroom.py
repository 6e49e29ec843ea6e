"""A class's folder: who is in it, what they handed in, how it was graded. Everything that is known about people.

    roster.csv               id, name, email
    collected/<id>/          the newest of each learner: progress.json, work/, assessment/, received.json
    older/<id>/<time>/       what it replaced
    graded/<id>/             grade.json and the rest that the grader writes
    survey/                  answer files
    overview.html            the page

Nothing here is sent anywhere. A `.gitignore` keeps it out of a repository that it may stand in by mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline.records.rundir import make_dirs, write_atomic

PRIVATE = "it stays on this machine: names and answers are in this folder only"


@dataclass(frozen=True)
class Classroom:
    """The names of what stands in the folder.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def roster(self) -> Path:
        """Who is in the class."""
        return self.path / "roster.csv"

    @property
    def collected(self) -> Path:
        """One folder a learner."""
        return self.path / "collected"

    @property
    def older(self) -> Path:
        """What was replaced."""
        return self.path / "older"

    @property
    def graded(self) -> Path:
        """One folder a learner."""
        return self.path / "graded"

    def of(self, learner: str) -> Path:
        """What a learner handed in last."""
        return self.collected / learner

    def handed_in(self) -> list[str]:
        """Ids of those of whom there is something."""
        if not self.collected.is_dir():
            return []
        return sorted(each.name for each in self.collected.iterdir() if each.is_dir() and not each.name.startswith("."))

    def make(self) -> None:
        """Make the folder, hidden from git; what is there stays."""
        make_dirs(self.path)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            write_atomic(ignore, b"# Names and answers of people: not for a repository.\n*\n")


def open_class(path: Path) -> Classroom:
    """A class's folder that is there.

    Raises:
        PacelineError: it is not.
    """
    if not path.is_dir():
        why = "it is a file" if path.exists() else "there is no such folder"
        raise PacelineError(
            f"{path} is no class folder",
            why=why,
            hint="paceline learn instructor roster FOLDER import people.csv makes one",
        )
    return Classroom(path)
