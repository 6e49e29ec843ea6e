"""A class of twenty, as it may be in the afternoon."""

from __future__ import annotations

from pathlib import Path

import pytest
from course.tests.instructor.people import make_class

from paceline_course.content import Course, load_course
from paceline_course.instructor.classroom import Classroom
from paceline_course.overview import labs_of


@pytest.fixture(scope="session")
def whole() -> Course:
    """The course itself."""
    return load_course()


@pytest.fixture
def room(tmp_path: Path, whole: Course) -> Classroom:
    """Eighteen handed in, two did not."""
    return make_class(tmp_path / "class", whole, labs_of(whole, "one-day"))
