"""Grade a submission: freeze it, draw the seeds, judge line by line, write one record and one page.

Seeds follow from a nonce that is drawn after the submission was frozen, from its digest and from the grader's own, so
nobody can choose them. Those of a practice follow from a number, which repeats them while the submission is mended.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.parallel.host import device_name
from paceline.parallel.placement import usable_cores
from paceline_course.answer import scratch_folder
from paceline_course.assess.accuracy import Trainings, gradient_bytes, judge_accuracy, judge_again, judge_samples
from paceline_course.assess.analysis.context import Facts, reruns
from paceline_course.assess.analysis.judge import judge
from paceline_course.assess.answers import read_answers
from paceline_course.assess.box import Box
from paceline_course.assess.correctness.drawing import draw
from paceline_course.assess.correctness.lines import LINES
from paceline_course.assess.correctness.runs import Trials
from paceline_course.assess.efficiency import judge_evaluation, judge_speed, judge_traffic
from paceline_course.assess.grade import Curve, Grade, Line, write_grade
from paceline_course.assess.judged import Scored, judged
from paceline_course.assess.kit import EVAL_SEED, grader_digest
from paceline_course.assess.planted import planted
from paceline_course.assess.rubric import Rubric, load_rubric
from paceline_course.assess.submission import ANSWERS, Submission, freeze, read_rows
from paceline_course.assess.task_folder import hang_seed
from paceline_course.checking import Wrong
from paceline_course.content import load_course
from paceline_course.runner import make_ready
from paceline_course.sandbox.limits import gaps as limit_gaps

Kind = Literal["practice", "final"]
OWN_DATA = 1
"""Seed of the data that learners have."""


@dataclass(frozen=True)
class Wish:
    """How a submission is to be graded.

    Attributes:
        kind: a final one has fresh seeds.
        all_lines: go on behind a gate line that failed.
        until: the last line to judge; empty for all.
        seed: of a practice, to repeat it; None for fresh ones.
        patience: factor on time limits.
        begun, told: are called with each line before and after it is judged.
    """

    kind: Kind = "practice"
    all_lines: bool = False
    until: str = ""
    seed: int | None = None
    patience: float = 1.0
    begun: Callable[[str], None] = field(default=lambda _: None)
    told: Callable[[Line], None] = field(default=lambda _: None)


def grade_submission(source: Path, out: Path, wish: Wish | None = None) -> Grade:
    """Grade the submission in a folder; `grade.json` is written into `out`, whole, when all is done.

    Raises:
        PacelineError: there is nothing that could be graded; nothing was run or written.
    """
    wish = wish or Wish()
    rubric = load_rubric()
    began, started = time.monotonic(), datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with scratch_folder() as scratch:
        submission = freeze(source, scratch / "frozen", rubric)
        make_ready()
        torch.set_num_threads(1)  # beside the submission's processes, two threads that wait for each other take long
        nonce = _nonce(wish)
        # A practice repeats its numbers while the submission is mended.
        seeds = draw_seeds(nonce, submission.digest if wish.kind == "final" else "")
        grading = _Grading(submission, rubric, seeds, scratch, wish)
        lines = grading.lines()
    grade = Grade(
        kind=wish.kind,
        learner=submission.learner,
        submission=submission.digest,
        grader=grader_digest(),
        course=load_course().version,
        nonce=nonce,
        seeds=seeds,
        started_at=started,
        seconds=round(time.monotonic() - began, 1),
        machine=machine(),
        lines=lines,
        curves=grading.curves(),
        target=rubric.accuracy.target,
        pass_points=rubric.pass_points,
        merit_points=rubric.merit_points,
        gaps=gaps(submission),
        complete=all(line.state != "untested" or line.message for line in lines),
    )
    out.mkdir(parents=True, exist_ok=True)
    write_grade(grade, out)
    return grade


def judged_seed(seeds: dict[str, int]) -> int:
    """What is added to a seed of data for the samples that are judged; far from what a program draws."""
    return (3 + seeds["judged"] % 900) * EVAL_SEED


def _nonce(wish: Wish) -> str:
    """Of a final grading nobody can guess it; that of a practice is a number which repeats it."""
    if wish.kind == "final":
        return secrets.token_hex(16)
    return f"practice-{secrets.randbelow(1_000_000) if wish.seed is None else wish.seed}"


def draw_seeds(nonce: str, submission: str) -> dict[str, int]:
    """The seeds of a grading, by what they are for."""
    names = ["sizes", "judged", *(f"{what}-{number}" for number in range(3) for what in ("weights", "data"))]
    found = {}
    for name in names:
        digest = hashlib.sha256(f"{nonce}\0{submission}\0{grader_digest()}\0{name}".encode()).digest()
        found[name] = int.from_bytes(digest[:8], "big") % 900_000 + 10
    return found


class _Grading:
    """One grading: lines in the order of the rubric, trainings made once for all lines that look at them."""

    def __init__(
        self, submission: Submission, rubric: Rubric, seeds: dict[str, int], scratch: Path, wish: Wish
    ) -> None:
        self._submission, self._rubric, self._wish, self._scratch = submission, rubric, wish, scratch
        self._box = Box(submission, scratch / "runs", rubric.limits, wish.patience)
        self._trials = Trials(self._box, draw(seeds["sizes"]))
        self._trainings = Trainings(self._box, rubric, judged_seed(seeds))
        self._own = Trainings(self._box, rubric)
        count = rubric.accuracy.trainings
        self._pairs = [(seeds[f"weights-{number}"], seeds[f"data-{number}"]) for number in range(count)]

    def lines(self) -> list[Line]:
        """All lines; those that were not reached say so."""
        found: dict[str, Line] = {}
        for name, line in self._judged():
            found[name] = line
            self._wish.told(line)
            closed = line.gate and line.state != "passed" and not self._wish.all_lines
            if closed or name == self._wish.until:
                break
        return [found.get(line.id) or self._rubric.empty(line.id) for line in self._rubric.lines]

    def curves(self) -> list[Curve]:
        """Of the learner's configurations, fresh data first."""
        chosen = self._submission.chosen
        curves = [*self._trainings.curves, *self._own.curves]
        return [msgspec.structs.replace(curve, chosen=curve.name == chosen) for curve in curves]

    def _judged(self) -> Iterator[tuple[str, Line]]:
        for name, judge_line in self._single().items():
            self._wish.begun(name)
            yield name, judged(self._rubric.line(name), judge_line)
        self._wish.begun("D.rates")
        for line in self._analysis():
            yield line.id, line

    def _single(self) -> dict[str, Callable[[], dict[str, Any] | Scored]]:
        run = self._submission.chosen_run
        first = self._pairs[0]
        return {
            **{name: partial(judge_line, self._trials) for name, judge_line in LINES.items()},
            "B.accuracy": lambda: judge_accuracy(self._trainings, run, self._pairs),
            "B.again": lambda: judge_again(self._trainings, run, first),
            "C.samples": lambda: judge_samples(self._trainings, run, self._pairs),
            "C.traffic": lambda: judge_traffic(self._trainings, run, first),
            "C.evaluation": lambda: judge_evaluation(self._trainings, run, first),
            "C.speed": lambda: judge_speed(self._box, self._rubric, self._scratch, self._wish.patience),
        }

    def _analysis(self) -> list[Line]:
        """Part D; a configuration that cannot be trained has no curve, and its questions say so."""
        began = time.monotonic()
        folder = self._submission.folder
        answers = read_answers(_content(folder / ANSWERS))
        runs = [run.settings for run in self._submission.runs]
        # Without answers there is nothing to compare with.
        for name, seed in [] if answers.problem else reruns(answers, runs, self._submission.chosen):
            run = self._submission.run(name)
            with contextlib.suppress(Wrong):
                if run is not None:
                    self._own.train(run, seed, OWN_DATA)
        planted_seed = hang_seed(_content(folder / "assessment.json"))
        facts = Facts(
            runs=runs,
            chosen=self._submission.chosen,
            target=self._rubric.accuracy.target,
            curves=self._own.curves,
            gradient_bytes=gradient_bytes(),
            rubric=self._rubric,
            planted=None if planted_seed is None else planted(planted_seed),
            comm=read_rows(_content(folder / "comm.csv")),
            compute=read_rows(_content(folder / "compute.csv")),
            one_device=self._rubric.accuracy.mean,
            final=True,  # hang.txt stays the same, so not even a practice tells the answer
        )
        lines = judge(answers, facts)
        took = round((time.monotonic() - began) / max(1, len(lines)), 2)
        return [msgspec.structs.replace(line, seconds=took) for line in lines]


def _content(path: Path) -> bytes | None:
    """Of a file in the frozen submission, which holds plain files only."""
    return path.read_bytes() if path.is_file() else None


def machine() -> dict[str, str]:
    """On what was graded."""
    return {
        "processor": device_name(torch.device("cpu")),
        "cores": str(usable_cores()),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "system": f"{platform.system()} {platform.release()}",
        "user": "root" if os.geteuid() == 0 else "an ordinary user",
    }


def gaps(submission: Submission) -> list[str]:
    """What could not be limited or observed, and what was not taken from the submission."""
    said = list(limit_gaps())
    if GroupCollectives.missing():
        said.append(f"torch {torch.__version__} does not tell of its collectives: C.traffic cannot be judged")
    said += [f"{name} was changed; the grader's own was used" for name in submission.changed]
    return said
