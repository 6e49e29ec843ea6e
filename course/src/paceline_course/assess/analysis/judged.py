"""From the values of an answer, each right or wrong by itself, to a line of the grade."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from paceline_course.assess.analysis.context import Facts
from paceline_course.assess.analysis.messages import MESSAGES
from paceline_course.assess.answers import FILE, Answers
from paceline_course.assess.grade import Line, State


@dataclass(frozen=True)
class Part:
    """One value that was asked for.

    Attributes:
        name: what it is, in words.
        message: id of the mistake; empty where it is right.
        expected: the right value, in words.
        got: the given one.
        weight: how much of the line's points it is worth, against the other parts.
    """

    name: str
    message: str = ""
    expected: str = ""
    got: str = ""
    weight: float = 1.0


def line_of(facts: Facts, name: str, parts: Iterable[Part], ran: str, evidence: Mapping[str, Any]) -> Line:
    """The judged line: points by the parts that are right; the first that is wrong gives message and advice."""
    empty, every = facts.rubric.empty(name), list(parts)
    wrong = [part for part in every if part.message]
    share = sum(part.weight for part in every if not part.message) / sum(part.weight for part in every)
    state: State = "passed" if not wrong else "partly" if share > 0 else "failed"
    line = _with(empty, state=state, points=round(empty.most * share, 2), ran=ran, evidence=dict(evidence))
    if not wrong:
        return line
    message = MESSAGES[wrong[0].message]
    return _with(
        line,
        message=wrong[0].message,
        expected=_listed((part.name, part.expected) for part in wrong),
        got=_listed((part.name, part.got) for part in wrong),
        likely=message.likely,
        look=message.look,
        evidence={**evidence, "messages": [part.message for part in wrong]},
    )


def untested(facts: Facts, name: str, why: str) -> Line:
    """A line that cannot be judged, with no points, and why."""
    message = MESSAGES["not-run"]
    return _with(facts.rubric.empty(name), message="not-run", got=why, likely=message.likely, look=message.look)


def unread(facts: Facts, name: str, problem: str) -> Line:
    """A line whose answer cannot be read, since the whole file cannot."""
    message = MESSAGES["unreadable"]
    return _with(
        facts.rubric.empty(name),
        state="failed",
        message="unreadable",
        expected=f"{FILE} as it was given, with your answers",
        got=problem,
        likely=message.likely,
        look=message.look,
    )


def number_of(answers: Answers, question: str, key: str) -> tuple[float | None, str]:
    """A number and "", or None and the id of what is wrong with it."""
    number = answers.number(question, key)
    if number is not None:
        return number, ""
    return None, "no-number" if answers.given(question, key) else "not-answered"


def word_of(answers: Answers, question: str, key: str) -> tuple[str | None, str]:
    """A text and "", or None and the id of what is wrong with it."""
    word = answers.word(question, key)
    if word is not None:
        return word, ""
    return None, "no-name" if answers.given(question, key) else "not-answered"


def run_of(answers: Answers, facts: Facts, question: str, key: str) -> tuple[str, str]:
    """The name of one of the learner's configurations and "", or "" and the id of what is wrong with it."""
    word, problem = word_of(answers, question, key)
    if word is None:
        return "", problem
    return (word, "") if facts.run(word) is not None else ("", "unknown-run")


def near(value: float, right: float, tolerance: float) -> bool:
    """Whether a value is right within a relative tolerance."""
    return math.isclose(value, right, rel_tol=tolerance, abs_tol=1e-300)


def first_match(value: float, wrongs: Iterable[tuple[str, float]], tolerance: float, otherwise: str) -> str:
    """The id of the first mistake that gives this value."""
    return next((name for name, wrong in wrongs if near(value, wrong, tolerance)), otherwise)


def _listed(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{name}: {text}" if name else text for name, text in rows)


def _with(line: Line, **changes: Any) -> Line:
    return msgspec.structs.replace(line, **changes)
