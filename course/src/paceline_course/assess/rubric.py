"""Lines, points and thresholds of the assessment: `course/assessment/rubric.toml`, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline_course.assess.grade import PARTS, Line
from paceline_course.content import course_folder


class RubricLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what is judged, and what it gives."""

    id: str
    title: str
    points: float
    gate: bool = False


class TaskNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the trainings of parts B, C and D."""

    samples: int
    eval_samples: int
    judged_samples: int
    base_batch: int
    base_rate: float
    base_epochs: int
    least_batch: int
    least_workers: int
    most_epochs: int
    most_workers: int
    least_runs: int


class AccuracyNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The target and what it rests on."""

    mean: float
    deviation: float
    seeds: int
    below: float
    trainings: int
    needed: int

    @property
    def target(self) -> float:
        """Accuracy that has to be held for two epochs running, 0 to 1."""
        return round(self.mean - self.below * self.deviation, 3)


class EfficiencyNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Between `good` (all points) and `bad` (none), points fall evenly."""

    samples_good: float
    samples_bad: float
    bytes_good: float
    bytes_bad: float
    calls_good: float
    calls_bad: float
    speed_good: float
    speed_bad: float
    speed_rounds: int


class AnalysisNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Tolerances of part D."""

    exact: float
    measured: float
    t_yes: float
    t_no: float


class LimitNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a submission may be and use."""

    file_bytes: int
    files: int
    total_bytes: int
    memory_bytes: int
    processes: int
    run_s: float
    training_s: float


class Rubric(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    pass_points: int
    merit_points: int
    finals_a_day: int
    lines: list[RubricLine]
    task: TaskNumbers
    accuracy: AccuracyNumbers
    efficiency: EfficiencyNumbers
    analysis: AnalysisNumbers
    limits: LimitNumbers

    def line(self, name: str) -> RubricLine:
        """The line with this id.

        Raises:
            KeyError: there is none.
        """
        for line in self.lines:
            if line.id == name:
                return line
        raise KeyError(name)

    def empty(self, name: str) -> Line:
        """The line as a grade has it before it is judged."""
        line = self.line(name)
        return Line(id=line.id, title=line.title, most=line.points, gate=line.gate)


def content_folder() -> Path:
    """Where the assessment's content stands: rubric, kit, solution."""
    return course_folder() / "assessment"


@cache
def load_rubric(folder: Path | None = None) -> Rubric:
    """The rubric.

    Raises:
        PacelineError: it cannot be read, or contradicts itself.
    """
    path = (folder or content_folder()) / "rubric.toml"
    try:
        rubric = msgspec.toml.decode(path.read_bytes(), type=Rubric)
    except (OSError, msgspec.MsgspecError) as error:
        raise PacelineError(f"{path} cannot be read", why=str(error)) from error
    if problems := contradictions(rubric):
        raise PacelineError(f"{path} contradicts itself", why="; ".join(problems))
    return rubric


def contradictions(rubric: Rubric) -> list[str]:
    """What cannot be."""
    said = []
    ids = [line.id for line in rubric.lines]
    said += [f"{name} stands there twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    said += [f"{name} belongs to no part" for name in ids if name.partition(".")[0] not in PARTS]
    total = sum(line.points for line in rubric.lines)
    if total != 100:
        said.append(f"the points sum to {total}")
    if not rubric.pass_points <= rubric.merit_points <= 100:
        said.append("the marks are not in order")
    return said
