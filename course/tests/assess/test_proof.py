"""The submissions that prove the grader: they can be made, and a sample of them is graded as it should be."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from course.tests.proof.cell import read_cells
from course.tests.proof.matrix import Case, _is_done, cases, grade_case, judging_digest, main, of_right, of_wrong
from course.tests.proof.matrix_page import render
from course.tests.proof.submissions import CHEAT, REFUSED, TRAP, Wrong, build, program, right_names, wrongs

from paceline.records.errors import PacelineError
from paceline_course.assess.analysis.messages import MESSAGES as ANALYSIS
from paceline_course.assess.correctness.coverage import _NEARLY, _nearly
from paceline_course.assess.grade import Grade
from paceline_course.assess.messages import MESSAGES
from paceline_course.assess.rubric import load_rubric

from .grades import lines

BY_NAME = {wrong.name: wrong for wrong in wrongs()}
SAMPLE = ("no-sampler", "past-the-wrapper", "averaged-twice", "group-left", "pickle-bomb", "link-handed-in")
"""Of each kind one that is soon told."""


def grade_of(failed: dict[str, str]) -> Grade:
    """A grade in which some lines failed with a message, and all others passed."""
    changes = {name: {"state": "failed", "message": message, "points": 0.0} for name, message in failed.items()}
    return Grade(
        kind="practice",
        submission="s",
        grader="g",
        course="1",
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        lines=lines(changes),
    )


def test_there_are_right_ones_and_many_wrong_ones() -> None:
    """Each has a name of its own, which is no right one's."""
    names = [wrong.name for wrong in wrongs()]
    assert len(names) >= 60
    assert len(set(names)) == len(names)
    assert not set(names) & set(right_names())
    assert {wrong.base for wrong in wrongs()} <= set(right_names())


@pytest.mark.parametrize("name", BY_NAME)
def test_a_wrong_one_can_be_made_and_says_what_has_to_come_out(name: str, tmp_path: Path) -> None:
    """Its edits fit, its line and its messages exist, and what is said of it is a sentence without an end."""
    wrong = BY_NAME[name]
    build(wrong, tmp_path / "submission")

    lines = {line.id for line in load_rubric().lines}
    assert wrong.line is None or wrong.line == REFUSED or wrong.line in lines
    assert set(wrong.also) <= lines
    if wrong.line is None:
        assert not wrong.messages
    elif wrong.line != REFUSED:
        assert wrong.messages
        assert set(wrong.messages) <= {*MESSAGES, *ANALYSIS}
    assert wrong.fault in (CHEAT, TRAP) or re.fullmatch(r"F(0[1-9]|[1-9]\d|1[01]\d|12[0-7])", wrong.fault)
    assert wrong.why
    assert not wrong.why.endswith(".")
    assert 0 < wrong.patience <= 1
    if name != "syntax":
        ast.parse((tmp_path / "submission" / "train.py").read_text())


def test_every_gate_line_is_broken_by_somebody() -> None:
    """So a line that judges nothing would be seen."""
    gate = {line.id for line in load_rubric().lines if line.gate}
    assert gate <= {wrong.line for wrong in wrongs()}


def test_a_fault_is_told_in_one_way() -> None:
    """A list of what else it may say would prove that it fails, and not that it says why."""
    assert {wrong.name for wrong in wrongs() if len(wrong.messages) > 1} == {"skips-an-empty-part"}


def test_an_edit_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """Old text that is not there, or there twice, would leave a right submission that is called wrong."""
    for old in ("not there at all", "options.batch"):
        wrong = Wrong("some", "A.runs", ("raised",), edits=(program(old, ""),))
        with pytest.raises(PacelineError, match=r"some: an edit does not fit ddp/train\.py"):
            build(wrong, tmp_path / old.replace(" ", "-"))


def test_cells_are_chosen_by_name_and_a_stranger_is_refused() -> None:
    """Wrong ones have one seed, right ones several."""
    found = list(cases(["no-sampler", "ddp"], seeds=2))
    assert [(case.name, case.seed) for case in found] == [("no-sampler", 1), ("ddp", 1), ("ddp", 2)]
    assert sum(case.wrong is None for case in cases(["right"], seeds=3)) == 3 * len(right_names())
    with pytest.raises(PacelineError, match="there is no submission nobody"):
        list(cases(["nobody"]))


def test_a_verdict_needs_the_right_line_and_the_right_message() -> None:
    """Each way in which a grade may not be what it should be."""
    wrong = Wrong("some", "A.oracle", ("unequal", "uneven-last"))

    def graded(line: str, message: str) -> str:
        return of_wrong(wrong, grade_of({line: message} if line else {}), "")

    assert graded("A.oracle", "uneven-last") == ""
    assert graded("A.oracle", "precision").startswith("A.oracle said precision")
    assert graded("A.runs", "unequal").startswith("not A.oracle: A.runs said unequal")
    assert graded("", "") == "it passed all up to A.oracle"
    assert of_wrong(wrong, None, "no config").startswith("it was refused")
    assert of_wrong(replace(wrong, also=("A.runs",)), grade_of({"A.runs": "unequal"}), "") == ""
    assert of_wrong(replace(wrong, line=None), grade_of({}), "") == ""
    assert of_wrong(replace(wrong, line=None), grade_of({"A.runs": "hang"}), "").startswith("a false fail")
    assert of_wrong(replace(wrong, line=REFUSED, messages=("a link",)), None, "x is a link") == ""
    assert of_right(grade_of({}), "") == ""
    assert "A.stop" in of_right(grade_of({"A.stop": "stop-own"}), "")


def test_a_cell_is_graded_again_when_something_else_is_expected_of_it(tmp_path: Path) -> None:
    """An old record says nothing about a new expectation."""
    case = Case("link-handed-in", 1, BY_NAME["link-handed-in"])
    cell = grade_case(case)
    assert cell.problem == ""
    assert _is_done(cell, case, cell.judging)
    assert not _is_done(cell, case, "other rules")
    for other in (replace(case.wrong, messages=("another",)), replace(case.wrong, also=("A.runs",))):
        assert not _is_done(cell, replace(case, wrong=other), cell.judging)


def test_who_attacks_its_user_is_graded_by_root_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As an ordinary user it would be that user's own session."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PacelineError, match="kills-everybody is graded by root only"):
        main(["--only", "kills-everybody", "--records", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_readings_ahead_are_in_order_and_another_order_is_not() -> None:
    """Loader workers read batches ahead, each at its own pace; an epoch cut into parts is read in no step's order."""
    drawn = np.random.default_rng(1)
    order = drawn.permutation(193)
    shares = [order[rank::3] for rank in range(3)]
    ahead = []
    for share in shares:
        batches = np.array_split(share, 8)
        ahead.append(np.concatenate([batches[step] for step in (0, 2, 1, 4, 3, 6, 5, 7)]))

    assert _nearly(shares, order) > 0.99
    assert _nearly(ahead, order) > _NEARLY + 0.3
    assert _nearly(np.array_split(order, 3), order) < 0
    assert max(_nearly(shares, drawn.permutation(193)) for _ in range(200)) < 0


@pytest.mark.serial
@pytest.mark.timeout(240)
def test_a_sample_of_wrong_ones_is_graded_as_it_should_be(tmp_path: Path) -> None:
    """One record each, a page of them, and a second call that has nothing to do."""
    records, page = tmp_path / "records", tmp_path / "page.md"
    assert main(["--only", *SAMPLE, "--records", str(records), "--report", str(page)]) == 0

    cells = read_cells(records / "cells")
    assert {cell.name for cell in cells} == set(SAMPLE)
    assert all(cell.judging == judging_digest() for cell in cells)
    assert page.read_text() == render(cells, "records")
    assert not Path("/tmp/paceline-proof-bomb").exists()
    before = {path: path.stat().st_mtime_ns for path in (records / "cells").iterdir()}
    assert main(["--only", *SAMPLE, "--records", str(records)]) == 0
    assert {path: path.stat().st_mtime_ns for path in (records / "cells").iterdir()} == before


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_right_one_passes_the_gate() -> None:
    """The matrix grades all of them in full, with three seeds."""
    cell = grade_case(Case("ddp", 1, Wrong("ddp", None, (), base="ddp")))

    assert cell.problem == ""
    assert all(cell.points[line.id] == line.points for line in load_rubric().lines if line.gate)
