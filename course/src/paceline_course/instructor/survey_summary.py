"""What a survey says: counts, medians, and the change from before to after, no more precisely than it is known.

The change is the median of what each person said after less what they said before. Its interval takes the r-th
smallest and the r-th largest of the differences, with the largest r that covers the true median at least 9 times
in 10: this assumes nothing about how answers are spread. Of fewer than five people nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from paceline_course.instructor.page import render
from paceline_course.instructor.survey import LEVELS, RATINGS, SKILLS, TEXTS, Answers, Collected

FEWEST = 5
COVERAGE = 0.9
_TOO_FEW = "too few to say"


@dataclass(frozen=True)
class Change:
    """From before to after, of those who answered both times.

    Attributes:
        people: how many.
        middle: median of the differences; None of fewer than five.
        low, high: of its interval.
    """

    people: int
    middle: float | None = None
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class Asked:
    """One question that is answered by a number.

    Attributes:
        what: the question.
        levels: what 1 to 5 mean.
        counts: of each answer, by half of the survey.
        change: of a skill; None of other questions.
    """

    what: str
    levels: Sequence[str]
    counts: Mapping[str, list[int]]
    change: Change | None = None


@dataclass(frozen=True)
class Summary:
    """All of it.

    Attributes:
        people: whose answers were read.
        asked: skills, then the rest.
        texts: answers in words to each question, sorted: their order says nothing about who wrote them.
        refused: files that were not read, and why.
    """

    people: int
    asked: list[Asked]
    texts: list[tuple[str, list[str]]]
    refused: list[tuple[str, str]]


def summarise(collected: Collected) -> Summary:
    """Count."""
    every = collected.answers
    asked = []
    for name, skill in SKILLS.items():
        pairs = [(each.before[name], each.after[name]) for each in every if name in each.before and name in each.after]
        counts = {
            "before": _counts([each.before[name] for each in every if name in each.before]),
            "after": _counts([each.after[name] for each in every if name in each.after]),
        }
        asked.append(Asked(skill, LEVELS, counts, change([after - before for before, after in pairs])))
    for name, (what, levels) in RATINGS.items():
        given = [each.ratings[name] for each in every if name in each.ratings]
        asked.append(Asked(what, levels, {"": _counts(given)}))
    texts = [(question, _said(every, name)) for name, question in TEXTS.items()]
    return Summary(len(every), asked, texts, collected.refused)


def change(differences: Sequence[int]) -> Change:
    """The median of differences, and its interval."""
    ordered, count = sorted(differences), len(differences)
    if count < FEWEST:
        return Change(count)
    rank = 1
    while 2 * (rank + 1) <= count and covered(count, rank + 1) >= COVERAGE:
        rank += 1
    return Change(count, median(ordered), ordered[rank - 1], ordered[count - rank])


def covered(count: int, rank: int) -> float:
    """How often the true median lies from the rank-th smallest to the rank-th largest of `count` values."""
    below = sum(math.comb(count, k) for k in range(rank))
    return 1 - 2 * below / float(2**count)


def _counts(values: Sequence[int]) -> list[int]:
    return [values.count(level) for level in range(1, len(LEVELS) + 1)]


def _said(every: Sequence[Answers], name: str) -> list[str]:
    return sorted(each.texts[name] for each in every if name in each.texts)


def middle(counts: Sequence[int]) -> str:
    """The median of counted answers, as it is shown."""
    values = [level for level, count in enumerate(counts, 1) for _ in range(count)]
    return f"{median(values):g}" if len(values) >= FEWEST else ("-" if not values else _TOO_FEW)


def change_text(found: Change) -> str:
    """A change in words."""
    if found.middle is None:
        return f"change: {_TOO_FEW} ({found.people} answered twice, {FEWEST} are needed)"
    interval = f"{found.low:+d} to {found.high:+d}" if found.low != found.high else f"{found.low:+d}"
    return f"change: {found.middle:+g}, 90 % interval {interval} ({found.people} people)"


def as_text(summary: Summary) -> str:
    """For a terminal; no newline at the end."""
    lines = [f"{summary.people} {'person' if summary.people == 1 else 'people'} answered", ""]
    for each in summary.asked:
        lines.append(each.what)
        for half, counts in each.counts.items():
            shown = "  ".join(f"{at}: {count}" for at, count in enumerate(counts, 1))
            lines.append(f"  {half:<6}  {shown}   median {middle(counts)}")
        if each.change is not None:
            lines.append(f"  {change_text(each.change)}")
        else:
            lines.append("  " + ", ".join(f"{at} {word}" for at, word in enumerate(each.levels, 1)))
    for question, texts in summary.texts:
        lines += ["", question, *(f"  - {text}" for text in texts or ["nobody wrote anything"])]
    if 0 < summary.people < FEWEST:
        lines += ["", "With so few people, an answer in words may tell who wrote it."]
    lines += [f"not read: {name}, {why}" for name, why in summary.refused]
    return "\n".join(lines)


def as_page(summary: Summary) -> str:
    """One HTML file that needs nothing else."""
    return render(
        "survey_summary.html.j2",
        "What the class said",
        style="survey.css",
        summary=summary,
        middle=middle,
        change_text=change_text,
        fewest=FEWEST,
    )
