"""From one master: what the learner gets, what is kept back, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.records.errors import PacelineError
from paceline_course.content import Course
from paceline_course.files import BEGINS, code_of, compose, first_line_of
from paceline_course.masters import Material, changed, lacking, material, read_master
from paceline_course.notebooks import build


def test_the_learners_notebook_has_no_answer_in_it(course: Course) -> None:
    """Text, starters and checks; no hint, solution, explanation or wrong answer."""
    lab = course.lab("L1")
    text = build(lab, read_master(course.lab_folder(lab) / "lab.py"))
    sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]

    assert sources[3].startswith("%%exercise L1.1\ndef twice(x):\n    raise NotImplementedError")
    assert sources[4] == 'check("L1.1")'
    assert not any(word in text for word in ("2 * x", "Because", "Third", "3 * x"))


def test_the_solved_notebook_has_the_solution_in_the_place_of_the_starter(course: Course) -> None:
    """And is otherwise the same."""
    lab = course.lab("L1")
    cells = read_master(course.lab_folder(lab) / "lab.py")
    solved = json.loads(build(lab, cells, solved=True))["cells"]
    learners = json.loads(build(lab, cells))["cells"]

    assert "".join(solved[3]["source"]).endswith("return 2 * x")
    assert [cell for n, cell in enumerate(solved) if n not in (3, 6)] == [
        cell for n, cell in enumerate(learners) if n not in (3, 6)
    ]


def test_notebooks_are_valid_and_built_the_same_each_time(course: Course) -> None:
    """The same bytes, by the format's own validator."""
    nbformat = pytest.importorskip("nbformat")
    lab = course.lab("L1")
    cells = read_master(course.lab_folder(lab) / "lab.py")

    assert build(lab, cells) == build(lab, cells)
    nbformat.validate(nbformat.reads(build(lab, cells), as_version=4))


def test_what_an_exercise_lacks_is_named(course: Course) -> None:
    """An empty one lacks all; a complete one nothing."""
    whole = material(read_master(course.lab_folder(course.lab("L1")) / "lab.py"))

    assert lacking(whole["L1.1"]) == []
    said = " ".join(lacking(Material()))
    assert all(
        word in said for word in ("task", "starter", "solution", "explanation", "Done when", "3 hints", "3 wrong")
    )


def test_a_part_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """A misspelt one would end up in the learner's notebook."""
    path = tmp_path / "lab.py"
    path.write_text('# %% exercise="L1.1" part="solutoin"\nx = 1\n')

    with pytest.raises(PacelineError, match="solutoin"):
        read_master(path)


def test_a_file_has_its_task_above_and_the_code_below(course: Course) -> None:
    """Markdown becomes comments; the code comes back as it was."""
    code = "def twice(x):\n    return 2 * x"
    text = compose(course.exercise("L1.1"), "## Task\n\nSee [here](https://x.org), **now**:\n\n```\na = 1\n```", code)

    assert code_of(text) == code
    assert text.splitlines()[first_line_of(text) - 1] == "def twice(x):"
    assert "# See here, now:" in text
    assert "#     a = 1" in text
    assert all(line.startswith("#") for line in text[: text.index(BEGINS)].splitlines() if line)


def test_a_file_without_a_head_is_all_code() -> None:
    """A learner may delete it."""
    assert code_of("\n\nx = 1\n") == "x = 1"
    assert first_line_of("\n\nx = 1\n") == 3


def test_a_wrong_answer_may_be_a_change_of_the_solution() -> None:
    """A line goes, others come in its place with its indentation."""
    solution = "def f(x):\n    y = x + 1\n    return y"
    wrong = "# the solution, but\n# - y = x + 1\n# + if x:\n# +     y = x\n# + z = 2\n# - return y\n"

    assert changed(solution, wrong) == "def f(x):\n    if x:\n        y = x\n    z = 2"
    assert changed(solution, "def f(x): pass") == "def f(x): pass"


def test_of_lines_that_are_alike_the_next_one_is_meant() -> None:
    """Behind the change before it, which stands where there is no doubt."""
    solution = "a = 0\nif x:\n    a = 0\nb = 1\na = 0"
    assert changed(solution, "# the solution, but\n# - b = 1\n# + b = 2\n# - a = 0") == "a = 0\nif x:\n    a = 0\nb = 2"
    with pytest.raises(PacelineError, match="stands 3 times"):
        changed(solution, "# the solution, but\n# - a = 0")
    with pytest.raises(PacelineError, match="stands 0 times"):
        changed("a = 0\na = 0\nb = 1", "# the solution, but\n# - b = 1\n# - a = 0")


@pytest.mark.parametrize("line", ["return x", "y"])
def test_a_change_of_a_line_that_is_not_there_once_is_refused(line: str) -> None:
    """A solution that was edited would else leave a wrong answer that is right."""
    with pytest.raises(PacelineError, match=r"stands [02] times"):
        changed("a = 1\ny\ny", f"# the solution, but\n# - {line}")


def test_a_solution_may_stand_in_a_file_beside_the_master(tmp_path: Path) -> None:
    """As it is, or with a change; a missing file is named."""
    (tmp_path / "toy.py").write_text("a = 1\nb = 2\n")
    master = tmp_path / "lab.py"
    master.write_text(
        '# %% exercise="L1.1" part="solution"\n# the file toy.py, but\n# - b = 2\n# + b = 3\n\n'
        '# %% exercise="L1.1" part="starter" expects="odd"\n# the solution, but\n# - a = 1\n'
    )

    found = material(read_master(master))["L1.1"]
    assert (found.solution, found.starter, found.starter_expects) == ("a = 1\nb = 3", "b = 3", "odd")
    gone = tmp_path / "gone.py"
    gone.write_text('# %% exercise="L1.1" part="solution"\n# the file nowhere.py\n')
    with pytest.raises(PacelineError, match=r"nowhere\.py"):
        read_master(gone)
