"""What a grading found: one record, for people, pages and certificates. Written whole, last, as `grade.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic

SCHEMA = 1
FILE = "grade.json"
State = Literal["passed", "partly", "failed", "untested"]


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the rubric, judged."""

    id: str
    """Its part and a word: A.oracle."""
    title: str
    most: float
    """Points that it can give."""
    points: float = 0.0
    gate: bool = False
    """Whoever fails it does not pass, whatever else they have."""
    state: State = "untested"
    message: str = ""
    """Id of the kind of mistake; empty where all is well."""
    ran: str = ""
    expected: str = ""
    got: str = ""
    likely: str = ""
    look: str = ""
    """What to look at next: a place in the code, a lab."""
    card: str = ""
    """Of a hang or a crash: which rank, at which line."""
    printed: str = ""
    """The end of what the submission printed."""
    evidence: dict[str, Any] = {}
    """Numbers behind the verdict, as far as a page or a later reader may want them; JSON values."""
    seconds: float = 0.0


class Curve(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One training that the grader ran: the numbers of each epoch, recomputed from the saved weights."""

    name: str
    """Of the configuration."""
    seed: int
    workers: int
    batch: int
    """Global."""
    samples: list[int] = []
    """Trained on so far, at the end of each epoch."""
    accuracy: list[float] = []
    """On the grader's own evaluation samples, 0 to 1."""
    seconds: float = 0.0
    """Of the whole program, on the grader's machine."""
    chosen: bool = False
    """It is the configuration that the submission stands by."""


class Grade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One grading."""

    schema: int = SCHEMA
    kind: Literal["practice", "final"]
    learner: str = ""
    """As the submission's config.toml names them; may be empty."""
    submission: str
    """sha256 of the frozen submission."""
    grader: str
    """sha256 of the grader's own code and of the rubric."""
    course: str
    """Version of the course."""
    nonce: str = ""
    """Drawn after the submission was frozen; with the two digests it gives all seeds."""
    seeds: dict[str, int] = {}
    started_at: str
    """UTC, ISO 8601."""
    seconds: float
    machine: dict[str, str] = {}
    """processor, cores, python, torch, system, user."""
    lines: list[Line]
    curves: list[Curve] = []
    target: float = 0.0
    """Accuracy that the chosen configuration had to reach."""
    pass_points: int = 70
    merit_points: int = 85
    gaps: list[str] = []
    """What could not be limited or observed on this machine, in words."""
    complete: bool = True
    """Every line was reached, also one that could not be judged and says why. Without, the grading stopped at the first
    gate line that failed, or where it was asked to."""

    @property
    def points(self) -> float:
        """Of 100."""
        return round(sum(line.points for line in self.lines), 1)

    @property
    def gate(self) -> bool:
        """Every gate line passed."""
        return all(line.state == "passed" for line in self.lines if line.gate)

    @property
    def passed(self) -> bool:
        """The gate and enough points."""
        return self.gate and self.points >= self.pass_points

    @property
    def result(self) -> Literal["merit", "passed", "failed"]:
        """In one word."""
        if not self.passed:
            return "failed"
        return "merit" if self.points >= self.merit_points else "passed"

    def part(self, letter: str) -> tuple[float, float]:
        """Points and their maximum in one part: A correctness, B accuracy, C efficiency, D analysis."""
        lines = [line for line in self.lines if line.id.startswith(f"{letter}.")]
        return round(sum(line.points for line in lines), 1), sum(line.most for line in lines)

    def line(self, name: str) -> Line:
        """The line with this id.

        Raises:
            KeyError: there is none.
        """
        for line in self.lines:
            if line.id == name:
                return line
        raise KeyError(name)


PARTS = {"A": "Correctness", "B": "Accuracy", "C": "Efficiency", "D": "Analysis"}


def write_grade(grade: Grade, folder: Path) -> Path:
    """Write it whole or not at all."""
    path = folder / FILE
    write_atomic(path, msgspec.json.format(msgspec.json.encode(grade), indent=1) + b"\n")
    return path


def read_grade(path: Path) -> Grade:
    """From a file, or from the folder that holds it.

    Raises:
        PacelineError: it is missing, damaged, or of a later version.
    """
    path = path / FILE if path.is_dir() else path
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Grade)
    except OSError as error:
        raise PacelineError(f"{path} cannot be read", why=error.strerror or str(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PacelineError(f"{path} is no grade", why=str(error)) from error
    if found.schema > SCHEMA:
        raise PacelineError(f"{path} was written by a later version", hint="pip install --upgrade paceline")
    return found
