"""What the grader knows when it judges part D, and which trainings it needs for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline_course.assess.answers import Answers
from paceline_course.assess.grade import Curve
from paceline_course.assess.held import held
from paceline_course.assess.planted import Planted
from paceline_course.assess.rubric import Rubric

SEEDS = (0, 1, 2)
"""Of the comparison in D.evidence; answers.toml names them."""


@dataclass(frozen=True)
class Facts:
    """All that answers are held against.

    Attributes:
        runs: the learner's configurations, as written in config.toml; each has name, workers, batch, epochs.
        chosen: name of the one that they stand by.
        target: accuracy, 0 to 1.
        curves: the grader's trainings of these configurations, on the data that the learner has (data seed 1).
        gradient_bytes: of the variant plain in float32.
        rubric: points and tolerances.
        planted: what hang.txt shows; None when no such file was given out.
        comm: lines of the learner's comm.csv, values as text.
        compute: of their compute.csv.
        one_device: held accuracy of one device; used where no configuration of theirs is one.
        final: the answer to D.hang stays untold. The grader always sets it, since hang.txt stays the same.
    """

    runs: Sequence[Mapping[str, Any]]
    chosen: str
    target: float
    curves: Sequence[Curve]
    gradient_bytes: int
    rubric: Rubric
    planted: Planted | None = None
    comm: Sequence[Mapping[str, str]] = ()
    compute: Sequence[Mapping[str, str]] = ()
    one_device: float | None = None
    final: bool = False

    def run(self, name: str | None) -> Mapping[str, Any] | None:
        """The configuration of that name."""
        return next((run for run in self.runs if run["name"] == name), None)

    @property
    def names(self) -> list[str]:
        """Of all configurations, in the order of the file."""
        return [str(run["name"]) for run in self.runs]

    def curve(self, name: str, seed: int | None = None) -> Curve | None:
        """The grader's training of a configuration, with its own seed unless one is given."""
        run = self.run(name)
        wanted = seed if seed is not None else own_seed(run) if run else 0
        return next((curve for curve in self.curves if (curve.name, curve.seed) == (name, wanted)), None)

    def level(self, name: str, seed: int | None = None) -> float | None:
        """The accuracy that it held, 0 to 1; None when it was not trained."""
        curve = self.curve(name, seed)
        return held(curve.accuracy) if curve is not None and curve.accuracy else None


def own_seed(run: Mapping[str, Any]) -> int:
    """The seed that a configuration names, which is refused where torch cannot take it; 0 without a whole number."""
    seed = run.get("seed", 0)
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else 0


def reruns(answers: Answers, runs: Sequence[Mapping[str, Any]], chosen: str) -> list[tuple[str, int]]:
    """The trainings, by name and seed, from which part D can be judged; none twice.

    Every configuration with its own seed, and the two that the learner compares with each of SEEDS, if the comparison
    is one that the task asks for.
    """
    by_name = {str(run["name"]): run for run in runs}
    wanted = [(name, own_seed(run)) for name, run in by_name.items()]
    pair = [answers.word("evidence", "first"), answers.word("evidence", "second")]
    if pair[0] != pair[1] and chosen in pair:
        wanted += [(name, seed) for name in pair if name in by_name for seed in SEEDS]
    return list(dict.fromkeys(wanted))
