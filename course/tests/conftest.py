"""A small course, and a learner's folder for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline_course.content import Course, load_course
from paceline_course.workspace import Workspace, start_workspace

SMALL = Path(__file__).parent / "small"


@pytest.fixture
def course() -> Course:
    """Two labs, two exercises."""
    return load_course(SMALL)


@pytest.fixture
def workspace(course: Course, tmp_path: Path) -> Workspace:
    """With the files of lab 1."""
    made = start_workspace(course, tmp_path / "mine")
    made.lay_out(course.lab("L1"))
    return made
