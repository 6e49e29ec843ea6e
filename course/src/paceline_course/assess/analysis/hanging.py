"""D.hang: which rank of a planted job, and what it did."""

from __future__ import annotations

from paceline_course.assess.analysis.context import Facts
from paceline_course.assess.analysis.judged import Part, line_of, number_of, untested, word_of
from paceline_course.assess.answers import Answers
from paceline_course.assess.grade import Line
from paceline_course.assess.planted import RANKS

_UNTOLD = "not told here: hang.txt stays the same"


def judge_hang(answers: Answers, facts: Facts) -> Line:
    """Half of the points each; a final keeps the solution to itself."""
    planted = facts.planted
    if planted is None:
        return untested(facts, "D.hang", "hang.txt was not given out with this folder")
    number, rank_problem = number_of(answers, "hang", "rank")
    if number is not None and number not in range(RANKS):
        rank_problem = "hang-no-rank"
    elif number is not None and number != planted.culprit:
        rank_problem = "hang-rank"
    word, cause_problem = word_of(answers, "hang", "cause")
    if word is not None and word not in planted.choices:
        cause_problem = "hang-no-cause"
    elif word is not None and word != planted.cause:
        cause_problem = "hang-slow" if planted.cause == "slow-reading" else _misread(word)
    open_rank = f"rank {planted.culprit}" if not facts.final else _UNTOLD
    open_cause = f"{planted.cause}. {planted.why}" if not facts.final else _UNTOLD
    parts = [
        Part("rank", rank_problem, open_rank, answers.shown("hang", "rank")),
        Part("cause", _untold(cause_problem, facts), open_cause, answers.shown("hang", "cause")),
    ]
    evidence = {} if facts.final else {"culprit": planted.culprit, "cause": planted.cause}
    return line_of(facts, "D.hang", parts, "hang.txt", evidence)


def _untold(problem: str, facts: Facts) -> str:
    """The message of a wrong cause says nothing of the right one where that is not to be told."""
    return "hang-cause" if facts.final and problem.startswith("hang-") and problem != "hang-no-cause" else problem


def _misread(word: str) -> str:
    """By what was answered: what the text would show then."""
    return {
        "slow-reading": "hang-not-slow",
        "network": "hang-not-network",
        "memory": "hang-not-memory",
        "exception": "hang-not-exception",
        "order": "hang-not-order",
        "fewer-batches": "hang-not-fewer",
        "own-stop": "hang-not-own-stop",
        "only-one-judges": "hang-not-judges",
        "only-one-saves": "hang-not-saves",
    }[word]
