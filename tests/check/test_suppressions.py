"""Comments that accept findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.check.catalog import RULES
from paceline.check.check_files import CheckResult, check_all, files_below, joined
from paceline.check.selection import Selection, Settings
from tests.check.test_command import FAULTY

LOADER = "loader = DataLoader(Numbers(), batch_size=8, shuffle=True)"


def result(folder: Path, text: str, **settings: tuple[str, ...]) -> CheckResult:
    """The check of one file, by default with the rule DP001 and the check of comments."""
    (folder / "train.py").write_text(text)
    selection = Selection(Settings(**({"select": ("DP001", "DP099")} | settings)))  # type: ignore[arg-type]
    shown = files_below([folder])
    return joined(check_all(list(shown), RULES), shown, selection)


def codes(found: CheckResult) -> list[str]:
    """Of the findings."""
    return [each.code for each in found.findings]


@pytest.mark.parametrize(
    "comment",
    [
        "# paceline: ignore[DP001] each rank has a data set of its own",
        "# paceline: ignore[no-sampler]",
        "#paceline:ignore[ DP001 ]",
        "# noqa  # paceline: ignore[DP001]",
    ],
)
def test_a_comment_accepts_the_finding_of_its_line(tmp_path: Path, comment: str):
    """By code or by name, also behind another comment."""
    assert codes(result(tmp_path, FAULTY)) == ["DP001"]
    assert codes(result(tmp_path, FAULTY.replace(LOADER, f"{LOADER}  {comment}"))) == []


def test_a_comment_on_the_first_or_last_line_of_the_statement_counts(tmp_path: Path):
    """Formatters move comments there."""
    wrapped = "loader = wrap(  # first\n    DataLoader(\n        Numbers(), shuffle=True\n    )\n)  # last"
    text = FAULTY.replace(LOADER, wrapped).replace("dist.init", "wrap = lambda loader: loader\ndist.init", 1)

    for place in ("# first", "# last"):
        assert codes(result(tmp_path, text.replace(place, "# paceline: ignore[DP001]"))) == []


def test_a_comment_that_accepts_nothing_is_reported(tmp_path: Path):
    """As a warning at the comment."""
    text = FAULTY.replace("model = DDP", "# paceline: ignore[DP001]\nmodel = DDP")

    found = result(tmp_path, text)

    assert codes(found) == ["DP001", "DP099"]
    assert found.findings[1].severity == "warning"
    assert text.splitlines()[(found.findings[1].line or 0) - 1] == "# paceline: ignore[DP001]"


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("# paceline: ignore", "names no rule"),
        ("# paceline: ignore[]", "names no rule"),
        ("# paceline: ignore[DP001, DP998]", "DP998 is no rule"),
    ],
)
def test_a_comment_without_a_rule_is_reported(tmp_path: Path, comment: str, says: str):
    """None, an empty list, and an unknown code."""
    found = result(tmp_path, FAULTY.replace(LOADER, f"{LOADER}  {comment}"))

    assert says in next(each for each in found.findings if each.code == "DP099").message


def test_a_comment_for_a_rule_that_does_not_run_is_not_reported(tmp_path: Path):
    """It may be needed with another selection."""
    text = FAULTY.replace("model = DDP", "model = 1  # paceline: ignore[DP081]\nmodel = DDP")

    assert codes(result(tmp_path, text)) == ["DP001"]
    assert codes(result(tmp_path, text, select=("DP001", "DP081", "DP099"))) == ["DP001", "DP099"]


def test_text_that_looks_like_a_comment_is_none(tmp_path: Path):
    """A string that contains one."""
    text = FAULTY.replace("model = DDP", "text = '# paceline: ignore'\nmodel = DDP")

    assert codes(result(tmp_path, text)) == ["DP001"]
