"""`make course` passes where the course keeps its promises, and says which answer does not do what it should."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from course.tests.conftest import SMALL
from course.tests.proof.exercises import complete, main, prove, soak

from paceline_course.content import Course, load_course
from paceline_course.outcome import Outcome
from paceline_course.runner import check

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


@pytest.fixture
def moody(tmp_path: Path) -> Course:
    """The small course with a check that takes a wrong answer for right where its random number is below 0."""
    folder = tmp_path / "course"
    shutil.copytree(SMALL, folder)
    checks = folder / "labs" / "L1" / "checks.py"
    checks.write_text(checks.read_text().replace("if got == 3 * x:", "if x > 0 and got == 3 * x:"))
    return load_course(folder)


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
    monkeypatch.setattr("course.tests.proof.exercises.load_course", lambda: course)
    assert main(["L1.1", "--quick", "--jobs", "1"]) == 1
    *tried, count, again = capsys.readouterr().out.splitlines()
    assert count.startswith("1 problem in ")
    assert again in tried
    assert again.startswith("NO  L1 has a quiz of 5")


def test_a_soak_finds_the_verdict_that_depends_on_random_numbers(
    moody: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the times; the other answers are as they should be as often as they were tried."""
    clock, seeds = itertools.count(), itertools.count()

    def numbered(*arguments: Any, seed: None, **options: Any) -> Outcome:
        return check(*arguments, seed=next(seeds), **options)

    monkeypatch.setattr("course.tests.proof.exercises.check", numbered)
    monkeypatch.setattr("course.tests.proof.exercises.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    # The clock is read twice an attempt and once a round, so five rounds of five attempts last 55.
    found = {each.name: each.problem for each in soak(moody, moody.exercise("L1.1"), seconds=55, quick=True)}
    assert next(seeds) == 5 * 5
    problem = found.pop("L1.1 wrong answer thrice, 5 times")
    bad = int(problem.split()[0])
    assert 0 < bad < 5
    assert problem.startswith(f"{bad} of 5 times, first: said other, not thrice; seed ")
    assert found == {
        "L1.1 starter, 5 times": "",
        "L1.1 solution, 5 times": "",
        "L1.1 wrong answer other, 5 times": "",
        "L1.1 wrong answer missing-name, 5 times": "",
    }


@pytest.mark.slow
def test_the_same_seed_gives_the_same_verdicts(moody: Course) -> None:
    """Some seeds find the fault and some don't; a seed does one or the other."""
    exercise = moody.exercise("L1.1")

    def said(seed: int) -> str:
        found = {each.name: each.problem for each in prove(moody, exercise, repeats=1, quick=True, seed=seed)}
        return found["L1.1 wrong answer thrice"]

    first = [said(seed) for seed in range(6)]
    assert first == [said(seed) for seed in range(6)]
    assert "" in first
    assert any(first)


def test_the_quick_proof_has_the_same_random_numbers_each_time(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other ones for each attempt; without the option they are fresh."""
    monkeypatch.setattr("course.tests.proof.exercises.load_course", lambda: course)
    seeds: list[int | None] = []

    def recorded(*arguments: Any, seed: int | None, **options: Any) -> Outcome:
        seeds.append(seed)
        return check(*arguments, seed=seed, **options)

    monkeypatch.setattr("course.tests.proof.exercises.check", recorded)

    def drawn(*arguments: str) -> list[int | None]:
        seeds.clear()
        main(["L1.1", "--jobs", "1", *arguments])
        return list(seeds)

    first = drawn("--quick")
    assert None not in first
    assert len(set(first)) == len(first) == 5
    assert drawn("--quick") == first == drawn("--quick", "--seed", "0")
    assert not set(first) & set(drawn("--quick", "--seed", "1"))
    assert set(drawn("--repeats", "1")) == {None}
