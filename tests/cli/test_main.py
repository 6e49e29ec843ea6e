"""The command line itself: what it says without a verb."""

import pytest

import paceline
from paceline.cli.main import call
from paceline.records.errors import Exit


def test_the_version_is_printed_without_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """`paceline --version` is asked by bug reports and scripts: the number alone, exit code 0."""
    code = call(["--version"])

    assert (code, capsys.readouterr().out) == (Exit.OK, f"{paceline.__version__}\n")


def test_a_missing_verb_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    """An option of the program without a verb: what is missing, and where to look."""
    code = call(["--nothing-like-it"])

    assert code == Exit.USAGE
    assert capsys.readouterr().err.startswith("error: ")
