"""The learner's folder: nothing that they wrote is lost, wherever they wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.records.errors import PacelineError
from paceline_course.content import Course
from paceline_course.files import code_of
from paceline_course.workspace import Workspace, find_workspace, start_workspace

MINE = "def twice(x):\n    return x + x"


def test_laying_out_again_leaves_what_is_there(workspace: Workspace) -> None:
    """Files and notebook."""
    exercise, lab = workspace.course.exercise("L1.1"), workspace.course.lab("L1")
    workspace.file(exercise).write_text(MINE)
    (workspace.path / lab.notebook_name).write_text("mine")

    assert workspace.lay_out(lab) == []
    assert workspace.file(exercise).read_text() == MINE
    assert (workspace.path / lab.notebook_name).read_text() == "mine"


def test_reset_keeps_what_was_there(workspace: Workspace) -> None:
    """Each time under a new name; a starter needs no copy."""
    exercise = workspace.course.exercise("L1.1")
    assert workspace.reset(exercise) is None
    for number in (1, 2):
        workspace.file(exercise).write_text(MINE)
        kept = workspace.reset(exercise)
        assert kept is not None
        assert kept.name == f"L1_1.before-reset-{number}.py"
        assert kept.read_text() == MINE
        assert workspace.untouched(exercise)


def test_a_cell_is_written_into_the_file_below_its_head(workspace: Workspace) -> None:
    """Again and again, as long as nobody else changed it."""
    exercise = workspace.course.exercise("L1.1")
    for code in (MINE, MINE + " + 0"):
        assert workspace.write_from_notebook(exercise, code)
        assert code_of(workspace.file(exercise).read_text()) == code
    assert workspace.file(exercise).read_text().startswith("# L1.1 · Twice")


def test_a_file_that_was_changed_elsewhere_is_not_overwritten_by_a_cell(workspace: Workspace) -> None:
    """Unless it is asked for; then the cell and the file agree again."""
    exercise = workspace.course.exercise("L1.1")
    workspace.write_from_notebook(exercise, MINE)
    workspace.file(exercise).write_text("def twice(x):\n    return x * 2\n")

    assert not workspace.write_from_notebook(exercise, MINE)
    assert "x * 2" in workspace.file(exercise).read_text()
    assert workspace.write_from_notebook(exercise, MINE, overwrite=True)
    assert workspace.write_from_notebook(exercise, MINE + "  # more")


def test_hints_come_one_after_the_other_and_open_the_solution(workspace: Workspace) -> None:
    """After the third it is shown, and noted as seen before it was solved."""
    exercise = workspace.course.exercise("L1.1")
    assert workspace.solution(exercise) is None
    assert [workspace.next_hint(exercise) for _ in range(4)] == [
        (1, "First."),
        (2, "Second."),
        (3, "Third."),
        (3, "Third."),
    ]
    assert workspace.solution(exercise) == ("def twice(x):\n    return 2 * x", "Because.")
    with workspace.progress() as known:
        assert known.of("L1.1").solution_seen


def test_the_folder_is_found_from_inside_and_from_in_front(
    workspace: Workspace, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `work`, and one above it under its usual name."""
    monkeypatch.chdir(workspace.work)
    assert find_workspace(course).path == workspace.path
    workspace.path.rename(workspace.path.with_name("paceline-course"))
    monkeypatch.chdir(workspace.path.parent)
    assert find_workspace(course).path.name == "paceline-course"


def test_a_folder_of_something_else_is_refused(course: Course, tmp_path: Path) -> None:
    """Nothing is mixed up."""
    (tmp_path / "thesis.tex").write_text("important")

    with pytest.raises(PacelineError, match="something else"):
        start_workspace(course, tmp_path)
    with pytest.raises(PacelineError, match="no course folder"):
        find_workspace(course, tmp_path)
