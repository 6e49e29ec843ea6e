"""One portable file: never lost, never trusted, merged without forgetting."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.records.errors import PacelineError
from paceline_course import progress
from paceline_course.progress import ExerciseProgress, Prediction, Progress, QuizProgress

TIMES = st.sampled_from(["2026-01-01", "2026-01-02", "2026-01-03"])


def exercises() -> st.SearchStrategy[ExerciseProgress]:
    """Any state of an exercise."""
    return st.builds(
        ExerciseProgress,
        attempts=st.integers(0, 9),
        hints=st.integers(0, 3),
        passed_at=st.none() | TIMES,
        first_at=st.none() | TIMES,
    )


def files() -> st.SearchStrategy[Progress]:
    """Any file."""
    names = st.sampled_from(["L1.1", "L1.2", "L2.1"])
    return st.builds(
        Progress,
        started_at=st.none() | TIMES,
        exercises=st.dictionaries(names, exercises(), max_size=3),
        quizzes=st.dictionaries(
            names, st.builds(QuizProgress, best=st.integers(0, 5), questions=st.just(5)), max_size=2
        ),
        predictions=st.dictionaries(names, st.builds(Prediction, expected=st.floats(0, 9), at=TIMES), max_size=2),
    )


@given(one=files(), other=files())
def test_merging_forgets_nothing_that_was_achieved(one: Progress, other: Progress) -> None:
    """What passed in either passed in both, with the earlier time, the most hints and the best quiz."""
    merged = progress.merge(one, other)

    for name in {*one.exercises, *other.exercises}:
        states = [each.exercises[name] for each in (one, other) if name in each.exercises]
        passed = [state.passed_at for state in states if state.passed_at]
        assert merged.exercises[name].passed_at == min(passed, default=None)
        assert merged.exercises[name].hints == max(state.hints for state in states)
    for name in {*one.quizzes, *other.quizzes}:
        best = max(each.quizzes[name].best for each in (one, other) if name in each.quizzes)
        assert merged.quizzes[name].best == best
    for name in {*one.predictions, *other.predictions}:
        first = min(each.predictions[name].at for each in (one, other) if name in each.predictions)
        assert merged.predictions[name].at == first


@given(one=files())
def test_merging_with_itself_changes_nothing(one: Progress) -> None:
    """Copying a file back does no harm."""
    assert progress.merge(one, one) == one


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b'{"exercises": 3}', b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_file_is_put_aside_and_said(tmp_path: Path, content: bytes) -> None:
    """The learner goes on, and nothing is thrown away."""
    path = tmp_path / "progress.json"
    for number in (1, 2):
        path.write_bytes(content)
        found, note = progress.read(path)
        assert found.exercises == {}
        assert f"progress.damaged-{number}.json" in note
        assert (tmp_path / f"progress.damaged-{number}.json").read_bytes() == content


def test_numbers_that_cannot_be_are_made_possible(tmp_path: Path) -> None:
    """Somebody wrote 99 hints and minus three attempts."""
    path = tmp_path / "progress.json"
    path.write_text(
        '{"exercises": {"L1.1": {"hints": 99, "attempts": -3}}, "quizzes": {"L1": {"best": 9, "questions": 5}}}'
    )
    found, _ = progress.read(path)

    assert (found.exercises["L1.1"].hints, found.exercises["L1.1"].attempts, found.quizzes["L1"].best) == (3, 0, 5)


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    """This one would lose what it does not know."""
    path = tmp_path / "progress.json"
    path.write_text('{"schema": 99}')

    with pytest.raises(PacelineError, match="later version"):
        progress.read(path)
    assert path.read_text() == '{"schema": 99}'


def test_two_who_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """A notebook and a terminal."""
    path = tmp_path / "progress.json"

    def add() -> None:
        for _ in range(25):
            with progress.changing(path, "1") as (known, _):
                known.of("L1.1").attempts += 1

    writers = [threading.Thread(target=add) for _ in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()

    assert progress.read(path)[0].of("L1.1").attempts == 100


def test_a_failure_while_it_is_changed_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Nothing half-written."""
    path = tmp_path / "progress.json"
    with progress.changing(path, "1") as (known, _):
        known.of("L1.1").attempts = 7
    before = path.read_bytes()

    def fail() -> None:
        with progress.changing(path, "1") as (known, _):
            known.of("L1.1").attempts = 8
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == before
    assert msgspec.json.decode(before)["exercises"]["L1.1"]["attempts"] == 7
