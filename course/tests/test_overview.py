"""Where a learner stands, and what a saved file sets off."""

from __future__ import annotations

import pytest

from paceline.records.errors import PacelineError
from paceline_course import watch
from paceline_course.content import Course, load_course
from paceline_course.overview import labs_of, list_text, next_exercise, states, status_text
from paceline_course.progress import ExerciseProgress, Progress, QuizProgress
from paceline_course.workspace import Workspace


@pytest.fixture
def real() -> Course:
    """The course itself."""
    return load_course()


ONE = Progress(
    exercises={"L1.1": ExerciseProgress(passed_at="2026-01-01")}, quizzes={"L2": QuizProgress(best=3, questions=5)}
)


def test_the_next_exercise_is_the_first_that_has_not_passed(course: Course) -> None:
    """In the order of the labs; none when all have."""
    assert next_exercise(course.labs, Progress()).id == "L1.1"
    assert next_exercise(course.labs, ONE).id == "L1.2"
    assert next_exercise(labs_of(course, "short"), ONE) is None


def test_the_next_exercise_is_looked_for_from_the_lab_on_that_was_started_last(real: Course) -> None:
    """Behind the last lab comes the first."""
    assert next_exercise(real.labs, Progress(lab="L4")).id == "L4.1"
    assert next_exercise(real.labs, Progress(lab="L0")).id == "L1.1"
    passed = {each.id: ExerciseProgress(passed_at="2026-01-01") for each in real.lab("L10").exercises}
    assert next_exercise(real.labs, Progress(lab="L10", exercises=passed)).id == "L1.1"


def test_a_lab_whose_last_exercise_has_passed_is_done(real: Course) -> None:
    """Whoever can do that one may skip the others."""
    passed = {"L1.4": ExerciseProgress(passed_at="2026-01-01")}
    assert next_exercise(real.labs, Progress(exercises=passed)).id == "L2.1"


def test_status_counts_and_names_what_is_next(course: Course) -> None:
    """One of two, the quiz, the next one."""
    text = status_text(course.labs, ONE)

    assert "1 of 2 exercises" in text
    assert "quiz 3 of 5" in text
    assert text.endswith("next: L1.2 · Sum over ranks")
    assert [state.done for state in states(course.labs, ONE)] == [False, True]


def test_a_list_marks_what_is_solved(course: Course) -> None:
    """With titles and minutes."""
    lines = list_text(course.labs, ONE).splitlines()

    assert "  ok L1.1   Twice  (2 min)" in lines
    assert "     L1.2   Sum over ranks  (3 min)" in lines


def test_an_unknown_track_is_refused_with_the_known_ones(course: Course) -> None:
    """By name."""
    with pytest.raises(PacelineError, match="short"):
        labs_of(course, "long")


def test_saving_a_file_sets_off_its_own_check_and_no_other(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is deleted and written anew."""
    one, two = workspace.course.exercise("L1.1"), workspace.course.exercise("L1.2")
    monkeypatch.setattr(watch, "_EVERY_S", 0.0)
    seen = watch.changes(workspace, rounds=3)
    started = watch.changes(workspace, rounds=1)

    assert list(started) == []
    assert next(seen, None) is None

    def edited() -> list[str]:
        looked = watch.changes(workspace, rounds=2)
        found = []
        original = watch.time.sleep

        def save(_: float) -> None:
            workspace.file(two).write_text("changed = True\n")

        monkeypatch.setattr(watch.time, "sleep", save)
        found += [each.id for each in looked]
        monkeypatch.setattr(watch.time, "sleep", original)
        return found

    assert edited() == ["L1.2"]
    assert workspace.file(one).exists()
