"""D.evidence: two configurations over three seeds each, by Welch's formula, as in lab 8."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from paceline_course.assess.analysis.context import SEEDS, Facts
from paceline_course.assess.analysis.judged import Part, line_of, number_of, run_of, untested
from paceline_course.assess.answers import Answers
from paceline_course.assess.grade import Curve, Line

_WITHIN_POINTS = 1.0
"""Percentage points that a mean of three trainings may be off on another machine."""
_CONFIDENCE = 0.95
"""Of the interval that lab 8 makes."""


@dataclass(frozen=True)
class Compared:
    """The difference of two means.

    Attributes:
        difference: first minus second.
        t: the difference by its standard error; infinite where nothing spreads.
        zero_inside: its 95 % interval by Welch's formula contains 0.
    """

    difference: float
    t: float
    zero_inside: bool


def compare(first: Sequence[float], second: Sequence[float]) -> Compared:
    """Welch's comparison of two samples, of two values or more each."""
    from scipy import stats

    difference = statistics.fmean(first) - statistics.fmean(second)
    a, b = statistics.variance(first) / len(first), statistics.variance(second) / len(second)
    if a + b == 0:
        return Compared(difference, math.copysign(math.inf, difference) if difference else 0.0, difference == 0)
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    half = float(stats.t.ppf(0.5 + _CONFIDENCE / 2, freedom)) * math.sqrt(a + b)
    return Compared(difference, difference / math.sqrt(a + b), abs(difference) <= half)


def judge_evidence(answers: Answers, facts: Facts) -> Line:
    """Half of the points for yes or no, half for the difference; none without two runs that may be compared."""
    first, problem_first = run_of(answers, facts, "evidence", "first")
    second, problem_second = run_of(answers, facts, "evidence", "second")
    problem = problem_first or problem_second
    if not problem and first == second:
        problem = "evidence-same-run"
    elif not problem and facts.chosen not in (first, second):
        problem = "evidence-not-chosen"
    if problem:
        got = f"{answers.shown('evidence', 'first')} and {answers.shown('evidence', 'second')}"
        expected = f"two of {', '.join(facts.names)}, one of them {facts.chosen}"
        return line_of(facts, "D.evidence", [Part("runs", problem, expected, got)], "", {})
    levels = {name: [facts.level(name, seed) for seed in SEEDS] for name in (first, second)}
    ours = [[level for level in levels[name] if level is not None] for name in (first, second)]
    if any(len(each) < len(SEEDS) for each in ours):
        return untested(facts, "D.evidence", f"{first} and {second} were not both trained again with three seeds")
    found = compare(*ours)
    shown = {name: [round(100 * level, 2) for level in each] for name, each in zip((first, second), ours, strict=True)}
    return line_of(
        facts,
        "D.evidence",
        [_yes_or_no(answers, facts, found), _points(answers, facts, found, (first, second))],
        ran="; ".join(f"{name} with seeds {', '.join(map(str, SEEDS))}: {each}" for name, each in shown.items()),
        evidence={"levels": shown, "points": round(100 * found.difference, 3), "t": _json(found.t)},
    )


def _yes_or_no(answers: Answers, facts: Facts, found: Compared) -> Part:
    """Between the two marks both are right, and "no" wherever lab 8's interval contains 0."""
    size, numbers = abs(found.t), facts.rubric.analysis
    said = answers.yes("evidence", "more_than_spread")
    expected = "yes" if size > numbers.t_yes else "no" if size < numbers.t_no else "yes or no"
    if said is None:
        given = answers.given("evidence", "more_than_spread")
        problem = "evidence-yes-or-no" if given else "not-answered"
    elif said and size < numbers.t_no:
        problem = "evidence-within-spread"
    elif not said and size > numbers.t_yes and not found.zero_inside:
        problem = "evidence-beyond-spread"
    else:
        problem = ""
    expected += f": the difference is {size:.1f} times its standard error"
    return Part("more than the spread", problem, expected, answers.shown("evidence", "more_than_spread"))


def _points(answers: Answers, facts: Facts, found: Compared, names: tuple[str, str]) -> Part:
    right = 100 * found.difference
    within = max(_WITHIN_POINTS, facts.rubric.analysis.measured * abs(right))
    number, problem = number_of(answers, "evidence", "points")
    if number is not None and abs(number - right) > within:
        problem = _wrong_points(number, right, within, facts, names)
    return Part("points", problem, f"{right:+.2f}, up to {within:.1f} off", answers.shown("evidence", "points"))


def _wrong_points(number: float, right: float, within: float, facts: Facts, names: tuple[str, str]) -> str:
    if abs(number + right) <= within:
        return "evidence-sign"
    if abs(100 * number - right) <= within and abs(number) < 1:
        return "evidence-fraction"
    pairs = [(facts.curve(names[0], seed), facts.curve(names[1], seed)) for seed in SEEDS]
    curves = [(a.accuracy, b.accuracy) for a, b in pairs if isinstance(a, Curve) and isinstance(b, Curve)]
    if abs(number - 100 * statistics.fmean(a[-1] - b[-1] for a, b in curves)) <= 0.1:
        return "evidence-last-epoch"
    if abs(number - 100 * statistics.fmean(max(a) - max(b) for a, b in curves)) <= 0.1:
        return "evidence-best-epoch"
    singles = [(facts.level(names[0], seed), facts.level(names[1], seed)) for seed in SEEDS]
    if any(a is not None and b is not None and abs(number - 100 * (a - b)) <= 0.1 for a, b in singles):
        return "evidence-one-seed"
    return "evidence-points"


def _json(value: float) -> float | str:
    return round(value, 3) if math.isfinite(value) else "infinite"
