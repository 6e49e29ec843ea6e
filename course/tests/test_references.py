"""What a lab's text refers to is there, or `make course` says what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from course.tests.proof.references import dangling

from paceline_course.content import Course, load_course
from paceline_course.masters import Cell, read_master

COURSE = load_course()


def lost(tmp_path: Path, *cells: Cell, show: str = "") -> list[str]:
    """Of a lab 1 with these cells, beside the real labs."""
    folder = tmp_path / "course" / "labs" / "L1"
    folder.mkdir(parents=True)
    (folder / "show.py").write_text(show)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text("")
    here = Course(title="", version="", labs=COURSE.labs, tracks=[], folder=str(tmp_path / "course"))
    return dangling(here, here.lab("L1"), cells)


@pytest.mark.parametrize("lab", COURSE.labs, ids=lambda lab: lab.id)
def test_no_lab_refers_to_what_is_not_there(lab: object) -> None:
    """All masters as they stand."""
    found = COURSE.lab(getattr(lab, "id", ""))
    assert dangling(COURSE, found, read_master(COURSE.lab_folder(found) / "lab.py")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("as in exercise L1.9", "there is no exercise L1.9"),
        ("open `work/L99_1.py`", "there is no exercise L99_1"),
        ("lab 3 and lab 12", "there is no lab 12"),
        ("labs 3, 4 and 17", "there is no lab 17"),
        ("more in docs/not_there.md.", "there is no file docs/not_there.md"),
        ("[more](not_there.md#part)", "the link not_there.md#part leads nowhere"),
        ("[more](https://nowhere)", "https://nowhere is no link"),
    ],
)
def test_a_name_that_leads_nowhere_is_said(text: str, said: str, tmp_path: Path) -> None:
    """In text, in code, in links."""
    assert lost(tmp_path, Cell(text, is_text=True)) == [said]


def test_what_is_there_is_not_complained_about(tmp_path: Path) -> None:
    """Exercises, labs, files, links, helpers, and predictions that are revealed."""
    text = (
        "L1.2, work/L4_2.py, labs 1 and 10, docs/there.md, [a](show.py), [b](docs/there.md#x), [c](https://a.org/b?c=d)"
    )
    asked = Cell('predict("L1", unit="s", time=...)', is_text=False)
    told = Cell('reveal("L1", time=show.timed(3))', is_text=False)
    assert lost(tmp_path, Cell(text, is_text=True), asked, told, show="def timed(n): ...") == []


def test_helpers_and_predictions_that_are_missing_are_said(tmp_path: Path) -> None:
    """A result that nobody was asked for, a question without a result, a function that show.py lacks."""
    cells = [
        Cell('reveal("L1", time=1)\npredict("L1", time=...)', is_text=False),
        Cell('predict("L2", size=...)', is_text=False),
        Cell("show.drawn()", is_text=False),
    ]
    assert lost(tmp_path, *cells, show="def other(): ...") == [
        "show.py has no drawn",
        "time of L1 is revealed, and nobody was asked",
        "what was said of L2 is never revealed",
    ]
