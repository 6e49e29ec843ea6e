"""All eight questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paceline_course.assess.analysis.context import Facts
from paceline_course.assess.analysis.evidence import judge_evidence
from paceline_course.assess.analysis.forecast import judge_forecast
from paceline_course.assess.analysis.formulas import judge_bytes, judge_rates
from paceline_course.assess.analysis.hanging import judge_hang
from paceline_course.assess.analysis.judged import unread
from paceline_course.assess.analysis.runs import judge_change, judge_cheapest, judge_target
from paceline_course.assess.answers import Answers
from paceline_course.assess.grade import Line

_QUESTIONS: Mapping[str, Callable[[Answers, Facts], Line]] = {
    "D.rates": judge_rates,
    "D.target": judge_target,
    "D.cheapest": judge_cheapest,
    "D.bytes": judge_bytes,
    "D.forecast": judge_forecast,
    "D.evidence": judge_evidence,
    "D.hang": judge_hang,
    "D.change": judge_change,
}


def judge(answers: Answers, facts: Facts) -> list[Line]:
    """One line a question, in the order of the rubric; each is judged by itself."""
    if answers.problem:
        return [unread(facts, name, answers.problem) for name in _QUESTIONS]
    return [question(answers, facts) for question in _QUESTIONS.values()]
