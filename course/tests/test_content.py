"""course.toml is the one place for titles, times and thresholds, and is refused where it contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.records.errors import PacelineError
from paceline_course.content import Course, contradictions, load_course

ONE = """
title = "t"
version = "1"
tracks = []
[[labs]]
id = "L1"
slug = "s"
title = "t"
goal = "g"
minutes = 5
machine_s = 1
"""


@pytest.mark.parametrize("name", ["L1.2", "l1.2", "L1_2", "l1_2.py"])
def test_an_exercise_is_found_however_its_id_is_typed(course: Course, name: str) -> None:
    """Also by the name of its file."""
    assert course.exercise(name).id == "L1.2"
    assert course.exercise(name).file_name == "L1_2.py"


def test_what_does_not_exist_is_refused_with_what_does(course: Course) -> None:
    """Exercises of the same lab, or the labs."""
    with pytest.raises(PacelineError, match=r"L1\.1, L1\.2"):
        course.exercise("L1.7")
    with pytest.raises(PacelineError, match="L1, L2"):
        course.lab("L9")


@pytest.mark.parametrize(
    ("addition", "problem"),
    [
        ('[[labs.exercises]]\nid = "L2.1"\ntitle = "t"\nminutes = 1\n', "stands in lab L1"),
        ('[[labs.exercises]]\nid = "L1.1"\ntitle = "t"\nminutes = 9\n', "take longer"),
        ('[[labs.exercises]]\nid = "L1.1"\ntitle = "t"\nminutes = 1\n' * 2, "stands there twice"),
        ('[[labs.exercises]]\nid = "one"\ntitle = "t"\nminutes = 1\n', "one is no id"),
        ("minutes = 6\n", "cannot be read"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, addition: str, problem: str) -> None:
    """Each with the reason."""
    (tmp_path / "course.toml").write_text(ONE + addition)

    with pytest.raises(PacelineError, match=problem):
        load_course(tmp_path)


def test_a_track_of_labs_that_do_not_exist_is_a_contradiction(course: Course) -> None:
    """It would end in the middle."""
    import msgspec

    broken = msgspec.structs.replace(course, labs=course.labs[:1])
    assert contradictions(broken) == ["track short names L2"]


def test_the_course_itself_is_sound() -> None:
    """The one that is installed."""
    assert load_course().labs
