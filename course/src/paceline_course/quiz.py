"""Quizzes whose answers are computed: each try draws new numbers, and every wrong choice has its own explanation.

A lab's questions stand in `course/labs/<lab>/quiz.py`, each a function from random numbers to a question:

    @asks
    def global_batch(draw) -> Question:
        ranks, batch = int(draw.integers(2, 9)), int(draw.integers(8, 65))
        return Number(f"{ranks} ranks, {batch} samples each: the global batch?", ranks * batch, why="...")
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.records.errors import PacelineError
from paceline_course.checking import load_module
from paceline_course.content import Course, Lab

_ASKS = "_paceline_asks"
TOLERANCE = 0.01


@dataclass(frozen=True)
class Number:
    """A question with a number for an answer.

    Attributes:
        text: the question.
        answer: the number.
        why: how one gets there; shown afterwards.
        tolerance: relative.
        unit: shown behind the question.
    """

    text: str
    answer: float
    why: str
    tolerance: float = TOLERANCE
    unit: str = ""

    @property
    def wants(self) -> str:
        """What an answer looks like."""
        return f"a number, to {self.tolerance:.0%}" if self.tolerance else "a number, exactly"

    def right(self, given: str) -> bool | None:
        """Whether an answer is right; None when it is no number."""
        try:
            value = float(given.replace(",", "").replace("_", "").strip())
        except ValueError:
            return None
        return math.isclose(value, self.answer, rel_tol=self.tolerance, abs_tol=1e-12)

    def explain(self, given: str) -> str:
        """What to say after this answer."""
        del given
        return f"{self.answer:.6g}{f' {self.unit}' if self.unit else ''}: {self.why}"


@dataclass(frozen=True)
class Choice:
    """A question with one right answer among several.

    Attributes:
        text: the question.
        right_one: the right answer.
        why: why it is.
        others: each wrong answer with why it is wrong.
        order: in which they are shown, as indices into (right_one, *others).
    """

    text: str
    right_one: str
    why: str
    others: Mapping[str, str]
    order: Sequence[int] = ()

    @property
    def shown(self) -> list[str]:
        """The answers in the order in which they are shown."""
        every = [self.right_one, *self.others]
        return [every[index] for index in self.order] if self.order else every

    @property
    def wants(self) -> str:
        """What an answer looks like."""
        return f"a letter, a to {chr(ord('a') + len(self.others))}"

    def right(self, given: str) -> bool | None:
        """Whether a letter (a, b, ...) is right; None when it is no answer."""
        index = ord(given.strip().lower()) - ord("a") if len(given.strip()) == 1 else -1
        return self.shown[index] == self.right_one if 0 <= index < len(self.shown) else None

    def explain(self, given: str) -> str:
        """What to say after this answer."""
        if self.right(given):
            return self.why
        chosen = self.shown[ord(given.strip().lower()) - ord("a")]
        return f"{self.others[chosen]} Right is: {self.right_one}. {self.why}"


Question = Number | Choice
Asks = Callable[[np.random.Generator], Question]


def asks(function: Asks) -> Asks:
    """Mark a function as a question of its lab; questions come in the order in which they stand."""
    setattr(function, _ASKS, True)
    return function


def draw_quiz(course: Course, lab: Lab, seed: int | None = None) -> tuple[int, list[Question]]:
    """The questions of a lab with fresh numbers, and the seed that gives the same ones again.

    Raises:
        PacelineError: the lab has none.
    """
    path = course.lab_folder(lab) / "quiz.py"
    if not path.is_file():
        raise PacelineError(f"{lab.id} has no quiz")
    module = load_module(path, f"paceline_course_{lab.id}_quiz")
    seed = secrets.randbelow(2**31) if seed is None else seed
    questions: list[Question] = []
    for number, function in enumerate(value for value in vars(module).values() if getattr(value, _ASKS, False)):
        draw = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, number))))
        question = function(draw)
        if isinstance(question, Choice):
            order = [int(index) for index in draw.permutation(1 + len(question.others))]
            question = Choice(question.text, question.right_one, question.why, question.others, order)
        questions.append(question)
    return seed, questions


def ask(questions: Sequence[Question], answer: Callable[[int], str], say: Callable[[str], None]) -> int:
    """Ask one question after the other, say after each what is right and why, and return how many were.

    Args:
        questions: of one try.
        answer: called with the number of the question, 0 for the first; an empty text is no answer.
        say: shows a text.
    """
    right = 0
    for number, question in enumerate(questions):
        say(f"\n{number + 1}. {question.text}  ({question.wants})")
        if isinstance(question, Choice):
            say("\n".join(f"   {chr(ord('a') + index)}) {text}" for index, text in enumerate(question.shown)))
        given = answer(number)
        verdict = question.right(given)
        right += bool(verdict)
        if verdict is None:
            say(f"   that is no answer; it is {question.wants}. {question.why}")
        else:
            say(f"   {'right.' if verdict else 'no.'} {question.explain(given)}")
    return right
