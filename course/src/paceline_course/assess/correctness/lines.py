"""The lines of part A in their order: what is looked at first says more than what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline_course.assess.correctness.coverage import judge_coverage
from paceline_course.assess.correctness.files import judge_runs
from paceline_course.assess.correctness.numbers import judge_numbers
from paceline_course.assess.correctness.resuming import judge_resume
from paceline_course.assess.correctness.runs import Trials
from paceline_course.assess.correctness.stopping import judge_stop
from paceline_course.assess.correctness.weights import judge_oracle, judge_ranks

Judge = Callable[[Trials], dict[str, Any]]

LINES: dict[str, Judge] = {
    "A.runs": judge_runs,
    "A.coverage": judge_coverage,
    "A.ranks": judge_ranks,
    "A.oracle": judge_oracle,
    "A.numbers": judge_numbers,
    "A.stop": judge_stop,
    "A.resume": judge_resume,
}
