"""Answers are computed, wrong choices explain themselves, and another try has other numbers."""

from __future__ import annotations

import pytest

from paceline_course.content import Course, load_course
from paceline_course.quiz import Choice, Number, draw_quiz


def test_a_seed_gives_the_same_questions_and_another_one_others(course: Course) -> None:
    """Numbers and the order of choices."""
    lab = course.lab("L1")
    _, first = draw_quiz(course, lab, 1)
    _, again = draw_quiz(course, lab, 1)
    others = [draw_quiz(course, lab, seed)[1] for seed in range(2, 12)]

    assert first == again
    assert len({each[0].text for each in others}) > 5
    assert len({tuple(each[1].shown) for each in others}) > 2


@pytest.mark.parametrize(
    ("given", "verdict"), [("3", True), (" 3.0 ", True), ("3.1", False), ("", None), ("abc", None)]
)
def test_a_number_is_right_wrong_or_no_answer(given: str, verdict: bool | None) -> None:
    """Within the tolerance, which may be none."""
    assert Number("1 + 2", 3, "", tolerance=0.0).right(given) is verdict
    assert Number("1000", 1000, "").right("1,005") is True


def test_a_wrong_choice_says_why_it_is_wrong() -> None:
    """And which one is right."""
    question = Choice("?", "yes", "Because.", {"no": "No, since."}, order=[1, 0])

    assert (question.right("b"), question.right("A"), question.right("c"), question.right("")) == (
        True,
        False,
        None,
        None,
    )
    assert question.explain("a") == "No, since. Right is: yes. Because."
    assert question.explain("b") == "Because."


@pytest.mark.parametrize("lab", [lab.id for lab in load_course().labs])
def test_every_question_of_the_course_accepts_its_own_answer(lab: str) -> None:
    """Over many seeds: numbers are finite, choices differ, and each wrong choice has its own explanation."""
    course = load_course()
    for seed in range(30):
        for question in draw_quiz(course, course.lab(lab), seed)[1]:
            assert question.text
            if isinstance(question, Number):
                assert question.right(repr(question.answer))
                assert question.why
            else:
                letters = [chr(ord("a") + index) for index in range(len(question.shown))]
                assert [question.right(letter) for letter in letters].count(True) == 1
                assert len(set(question.shown)) == len(question.shown) >= 3
                assert len(set(question.others.values())) == len(question.others)
