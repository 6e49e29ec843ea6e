"""The zip for learners: complete, the same each time, without a solution in it."""

from __future__ import annotations

import zipfile
from pathlib import Path

from paceline_course.content import Course, load_course
from paceline_course.instructor.handout import ROOT, make_handout
from paceline_course.masters import material, read_master
from paceline_course.overview import labs_of
from paceline_course.workspace import find_workspace


def test_two_handouts_are_the_same_file(tmp_path: Path, whole: Course) -> None:
    """Byte for byte, whenever they are made."""
    labs = labs_of(whole, "half-day")
    one = make_handout(whole, labs, tmp_path / "1.zip", "half-day")
    other = make_handout(whole, labs, tmp_path / "2.zip", "half-day")

    assert one.digest == other.digest
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()
    with zipfile.ZipFile(one.path) as file:
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_no_solution_and_no_wrong_answer_is_in_it(tmp_path: Path, whole: Course) -> None:
    """Each long line of ours that learners are to find themselves is looked for; the starters are found."""
    make_handout(whole, whole.labs, tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as file:
        shipped = {name: file.read(name).decode() for name in file.namelist()}
    everything = "\n".join(shipped.values())
    lines = {line.strip() for line in everything.splitlines()}
    checked = 0
    for lab in whole.labs:
        cells = read_master(whole.lab_folder(lab) / "lab.py")
        for name, parts in material(cells).items():
            own = [line.strip() for line in parts.solution.splitlines() if len(line.strip()) > 25]
            news = [line for line in own if line not in parts.starter and line not in lines]
            # Some lines of a solution stand in the given code as well; a solution as a whole does not.
            assert parts.solution not in everything, name
            assert parts.starter in shipped["/".join((ROOT, "work", f"{name.replace('.', '_')}.py"))]
            checked += bool(news)
    assert checked > 40


def test_it_unpacks_to_a_course_folder(tmp_path: Path, whole: Course) -> None:
    """With the three commands in its README, and every lab of the track twice."""
    labs = labs_of(whole, "one-day")
    made = make_handout(whole, labs, tmp_path / "c.zip", "one-day")
    with zipfile.ZipFile(made.path) as file:
        assert file.namelist() == sorted(file.namelist())
        assert len(file.namelist()) == made.files
        file.extractall(tmp_path)

    workspace = find_workspace(load_course(), tmp_path / ROOT)
    assert all((workspace.path / lab.notebook_name).is_file() for lab in labs)
    assert all(workspace.untouched(exercise) for lab in labs for exercise in lab.exercises)
    assert [path for lab in labs for path in workspace.lay_out(lab)] == []
    readme = (workspace.path / "README.md").read_text()
    for command in ("doctor", "next --track one-day", "check L1.1"):
        assert f"paceline learn {command}" in readme
