"""The notebook works on the same files as the editor and the terminal, and remembers what was predicted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from paceline_course import notebook
from paceline_course.content import Course, load_course
from paceline_course.workspace import Workspace

interactive = pytest.importorskip("IPython.core.interactiveshell")
CELL = "def twice(x):\n    return 2 * x\n"


@pytest.fixture
def shell(workspace: Workspace, course: Course, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A notebook in the learner's folder of the small course."""
    monkeypatch.chdir(workspace.path)
    monkeypatch.setattr(notebook, "load_course", lambda: course)
    shell = interactive.InteractiveShell.instance()
    monkeypatch.setattr(notebook, "_namespace", lambda: shell.user_ns)
    yield shell
    interactive.InteractiveShell.clear_instance()


def test_a_cell_goes_into_the_file_and_defines_what_it_defines(
    shell: Any, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has its head; the notebook has the function."""
    notebook.exercise_cell("L1.1", CELL)

    assert "work/L1_1.py holds this cell" in capsys.readouterr().out
    assert workspace.file(workspace.course.exercise("L1.1")).read_text().endswith(CELL)
    assert shell.user_ns["twice"](4) == 8


def test_a_file_that_was_edited_elsewhere_wins_and_says_how_to_go_on(
    shell: Any, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its code is what the notebook then has; --overwrite keeps the cell."""
    path = workspace.file(workspace.course.exercise("L1.1"))
    path.write_text("def twice(x):\n    return x + x + 0\n")
    notebook.exercise_cell("L1.1", CELL)

    said = capsys.readouterr().out
    assert "was changed outside this notebook" in said
    assert "return x + x + 0" in said
    assert "x + x" in path.read_text()
    notebook.exercise_cell("L1.1 --overwrite", CELL)
    assert "2 * x" in path.read_text()


def test_a_cell_that_is_a_program_is_not_run(shell: Any) -> None:
    """It defines what it defines; `if __name__ == "__main__"` is for torchrun."""
    notebook.exercise_cell("L1.1", CELL + '\nif __name__ == "__main__":\n    raise SystemExit(3)\n')

    assert shell.user_ns["twice"](2) == 4
    assert shell.user_ns["__name__"] == "__main__"


def test_an_error_in_a_cell_shows_the_line_of_the_file(shell: Any, workspace: Workspace) -> None:
    """So that an editor can jump there."""
    with pytest.raises(ZeroDivisionError) as caught:
        notebook.exercise_cell("L1.1", "x = 1\n\ny = x / 0\n")

    frame = caught.traceback[-1]
    path = workspace.file(workspace.course.exercise("L1.1"))
    assert Path(str(frame.path)) == path
    assert path.read_text().splitlines()[frame.lineno] == "y = x / 0"


def test_what_was_predicted_first_counts_and_is_shown_beside_the_result(
    shell: Any, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second prediction changes nothing; without one there is none."""
    notebook.predict("L1", unit="times", speed=2)
    notebook.predict("L1", unit="times", speed=3)
    notebook.reveal("L1", speed=1.5, other=1.0)

    said = capsys.readouterr().out
    assert "the first word counts" in said
    assert "speed: measured 1.5, you said 2" in said
    assert "other: measured 1, no prediction" in said
    with workspace.progress() as known:
        assert known.predictions["L1:speed"].measured == 1.5


def test_dots_are_no_prediction(shell: Any, workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """A cell that is run as it stands notes nothing, so the learner's first number still counts."""
    notebook.predict("L1", speed=..., size=3)
    assert "in the place of the dots of speed; nothing is noted yet" in capsys.readouterr().out

    notebook.predict("L1", speed=4)
    with workspace.progress() as known:
        assert {name: held.expected for name, held in known.predictions.items()} == {"L1:speed": 4.0}


def test_a_prediction_and_its_result_are_drawn_on_one_axis(
    shell: Any, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 0, with the unit; what was not predicted is not drawn."""
    shown: list[Any] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    notebook.reveal("L1", speed=1.5)
    assert shown == []

    notebook.predict("L1", unit="times", speed=2)
    notebook.reveal("L1", speed=1.5, other=1.0)
    (figure,) = shown
    (axis,) = figure.axes
    at = {line.get_label(): line.get_xdata()[0] for line in axis.lines}
    assert (at["you said"], at["measured"], axis.get_title(loc="left")) == (2.0, 1.5, "speed, times")
    assert axis.get_xlim()[0] < 0 < axis.get_xlim()[1]
    plt.close(figure)


def test_checks_hints_and_quizzes_are_those_of_the_terminal(
    shell: Any, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same progress."""
    notebook.exercise_cell("L1.1", CELL)
    notebook.hint("L1.1")
    notebook.solution("L1.1")
    notebook.check("L1.1")
    notebook.solution("L1.1")
    notebook.quiz("L1", answers=["1", "a"], seed=1)

    said = capsys.readouterr().out
    assert all(
        word in said for word in ("Hint 1 of 3. First.", "is not solved yet", "passed in", "Because.", "of 2 right")
    )
    with workspace.progress() as known:
        assert known.exercises["L1.1"].passed_at
        assert known.quizzes["L1"].questions == 2


def test_a_wrong_name_is_said_without_a_traceback(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In the words of the terminal."""
    notebook.check("L1.9")
    notebook.exercise_cell("", CELL)

    said = capsys.readouterr().out
    assert "L1.1, L1.2" in said
    assert "takes the id of one exercise" in said


def test_the_course_that_is_installed_is_the_one_that_notebooks_use() -> None:
    """Its labs can be named."""
    assert load_course().lab("l1").id == "L1"
