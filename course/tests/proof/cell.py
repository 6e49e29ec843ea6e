"""One cell of the matrix that proves the grader, as it is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError


class Cell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a grading of one submission gave."""

    name: str
    """Of the submission."""
    seed: int
    kind: str
    """right, cheat, trap, or the id of a fault."""
    base: str
    """The right submission that it was made from."""
    why: str = ""
    wanted: str = ""
    """The line that has to fail; "right" for a right submission, empty where the gate has to pass."""
    failed: str = ""
    """The first line that did not give all of its points; empty when there is none."""
    message: str = ""
    got: str = ""
    expected: str = ""
    """Digest of what was to be said of a wrong one: line, messages, and how far it was to be judged."""
    problem: str = ""
    """Why that is not as it should be; empty when it is."""
    points: dict[str, float] = {}
    """Of each line that was judged."""
    until: str = ""
    """The last line that was judged; empty for all."""
    result: str = ""
    """Of a right one: merit, passed or failed."""
    submission: str
    judging: str
    """Digest of all that decides a verdict."""
    grader: str
    """The grader's own digest."""
    at: str
    """UTC, ISO 8601."""
    seconds: float
    machine: dict[str, str] = {}

    @property
    def file(self) -> str:
        """Of its record."""
        return f"{self.name}_seed{self.seed}.json"


def read_cells(folder: Path) -> list[Cell]:
    """All cells of a folder, by name and seed.

    Raises:
        PacelineError: a record is damaged.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Cell))
        except (OSError, msgspec.MsgspecError) as error:
            raise PacelineError(f"the record {path.name} cannot be read", why=str(error), hint="remove it") from error
    return found
