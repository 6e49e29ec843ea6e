"""`make course` passes where the course keeps its promises, and says which answer does not do what it should."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.learn.content import Course, load_course
from paceline.learn.prove import complete, main, prove
from tests.learn.conftest import SMALL

Broken = Callable[[str, str], Course]


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    """The small course, with one piece of lab 1's master replaced by another."""

    def make(old: str, new: str) -> Course:
        folder = tmp_path / "course"
        shutil.copytree(SMALL, folder)
        master = folder / "labs" / "L1" / "lab.py"
        text = master.read_text()
        assert text.count(old) == 1
        master.write_text(text.replace(old, new))
        return load_course(folder)

    return make


def problems(course: Course, exercise: str = "L1.1", repeats: int = 1) -> dict[str, str]:
    """What `prove` tried, and what it complained about."""
    found = prove(course, course.exercise(exercise), repeats=repeats, quick=True)
    return {each.name.removeprefix(f"{exercise} "): each.problem for each in found}


def test_starter_solution_and_wrong_answers_are_all_tried(course: Course) -> None:
    """The solution as often as was asked for."""
    assert problems(course, repeats=2) == {
        "starter": "",
        "solution, time 1": "",
        "solution, time 2": "",
        "wrong answer thrice": "",
        "wrong answer other": "",
        "wrong answer missing-name": "",
    }


def test_a_wrong_answer_that_passes_is_a_problem(broken: Broken) -> None:
    """It was to be rejected."""
    found = problems(broken("return 3 * x", "return x + x"))
    assert found["wrong answer thrice"].startswith("said passed, not thrice; seed ")
    assert found["wrong answer other"] == ""


def test_a_wrong_answer_with_another_answers_message_is_a_problem(broken: Broken) -> None:
    """Each mistake has its own."""
    found = problems(broken('return x\n\n\n# %% exercise="L1.1" part="wrong" expects="missing-name"',
                            'return 3 * x\n\n\n# %% exercise="L1.1" part="wrong" expects="missing-name"'))  # fmt: skip
    assert found["wrong answer other"].startswith("said thrice, not other")


def test_a_solution_that_fails_is_a_problem(broken: Broken) -> None:
    """With what was found and the seed."""
    found = problems(
        broken('part="solution"\ndef twice(x):\n    return 2', 'part="solution"\ndef twice(x):\n    return 4')
    )
    assert found["solution, time 1"].startswith("said other, not passed; seed ")


def test_a_message_that_does_not_exist_is_a_problem(broken: Broken) -> None:
    """The answer that expects it is not even tried."""
    found = problems(broken('part="wrong" expects="thrice"', 'part="wrong" expects="fourfold"'))
    assert found["wrong answer fourfold"] == "there is no such message"


def test_a_starter_that_passes_is_a_problem(broken: Broken) -> None:
    """There would be nothing to do."""
    old = 'exercise="L1.1" part="starter"\ndef twice(x):\n    raise NotImplementedError'
    found = problems(broken(old, 'exercise="L1.1" part="starter"\ndef twice(x):\n    return 2 * x'))
    assert found["starter"].startswith("said passed, not todo")


def test_what_a_lab_lacks_is_said(broken: Broken) -> None:
    """The explanation of the second exercise, and three questions."""
    course = broken('# Because.\n\n\n# %% exercise="L1.2"', '\n# %% exercise="L1.2"')
    found = {each.name: each.problem for each in complete(course, course.lab("L1"))}
    assert found == {
        "L1 refers to nothing that is not there": "",
        "L1 has only known exercises": "",
        "L1.1 is complete": "",
        "L1.2 is complete": "it lacks explanation",
        "L1 has a quiz of 5": "2 questions",
    }


def test_problems_stand_at_the_end_again(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever sees only the last lines of a log sees them, not only how many there are."""
    monkeypatch.setattr("paceline.learn.prove.load_course", lambda: course)
    assert main(["L1.1", "--quick"]) == 1
    *tried, count, again = capsys.readouterr().out.splitlines()
    assert count.startswith("1 problem in ")
    assert again in tried
    assert again.startswith("NO  L1 has a quiz of 5")
