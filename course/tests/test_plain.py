"""Tasks, hints and explanations can be read in a terminal."""

from __future__ import annotations

import re

import pytest

from paceline_course.content import load_course
from paceline_course.masters import read_master
from paceline_course.plain import plain, without_title

COURSE = load_course()


def test_paragraphs_and_items_are_wrapped_anew_and_code_is_left_alone() -> None:
    """A line break of the source is a blank; an item's further lines hang below its text."""
    text = "One **long**\nline, [here](https://x.org).\n\n- a first item\n  of two lines\n- b\n\n"
    text += "```\nx  =  1\n\n# y\n```\nEnd."
    assert plain(text, 20) == (
        "One long line, here.\n\n- a first item of\n  two lines\n- b\n\n    x  =  1\n\n    # y\nEnd."
    )


def test_marks_inside_code_are_code() -> None:
    """Powers are no emphasis, and a dollar sign no formula."""
    assert plain("**So** `2 ** 3 ** 4` and `a $b$ c` [`f`](x.py)") == "So `2 ** 3 ** 4` and `a $b$ c` `f`"


@pytest.mark.parametrize(
    ("latex", "said"),
    [
        (r"g \leftarrow g + \lambda w, \qquad w \leftarrow w - \eta v", "g ← g + λw,    w ← w - ηv"),
        (r"v = \lVert g \rVert^2", "v = ‖g‖²"),
        (r"\frac{g}{\sqrt v + \epsilon}", "g / (√v + ε)"),
        (r"\frac{\frac{a}{b} + 1}{n_a - 1}", "(a / b + 1) / (n_a - 1)"),
        (r"e = \sqrt{s_1^2 / n}", "e = √(s₁² / n)"),
        (r"\operatorname{tr} \Sigma", "tr Σ"),
        (r"\nu = 2 \cdot \text{trust}", "ν = 2 · trust"),
        (r"\left", r"\left"),
    ],
)
def test_formulae_become_one_line(latex: str, said: str) -> None:
    """What is not known stays, so that it is noticed."""
    assert plain(f"${latex}$") == said
    assert plain(f"$$ {latex} $$") == f"    {said}"
    assert plain(f"$$\n{latex}\n$$") == f"    {said}"


def test_the_title_of_a_task_goes_and_its_first_line_stays() -> None:
    """A heading is no part of what is to be done."""
    assert without_title("### Exercise\n\nDo it.") == "Do it."
    assert without_title("Do it.\n\n# not a title") == "Do it.\n\n# not a title"


def test_nothing_of_the_course_is_left_untranslated() -> None:
    """All tasks, hints and explanations; what is in code is not looked at."""
    for lab in COURSE.labs:
        for cell in read_master(COURSE.lab_folder(lab) / "lab.py"):
            if cell.part and cell.is_text:
                said = plain(cell.source)
                left = re.findall(r"\*\*|\$|\\[A-Za-z]", re.sub(r"`[^`]*`", "", said))
                assert left == [], (cell.exercise, cell.part)
                assert max(len(line) for line in said.splitlines()) <= 100, (cell.exercise, cell.part)
