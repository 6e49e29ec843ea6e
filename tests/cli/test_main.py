"""The command line itself: what it says without a verb."""

import sys
from importlib import metadata

import pytest

import paceline
from paceline.cli.main import call
from paceline.cli.verbs import ENTRY_POINTS, Command, Group
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


def test_a_verb_of_a_distribution_that_is_not_installed_is_listed_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help shows `learn`; to type it is a refusal with the command that installs the course."""
    monkeypatch.setattr(metadata, "entry_points", lambda **_: metadata.EntryPoints())

    listed = call(["--help"])
    help_text = capsys.readouterr().out
    refused = call(["learn", "start", "L1"])

    assert (listed, refused) == (Exit.OK, Exit.USAGE)
    assert "\n  learn " in help_text
    said = capsys.readouterr().err
    assert said.startswith("error: the course is not installed\n")
    assert "pip install ./course" in said


def shout(words: list[str]) -> int:
    """A command of another distribution."""
    sys.stdout.write(" ".join(words).upper() + "\n")
    return 0


ELSEWHERE = Group(
    "A group.", "paceline learn shout", {"shout": Command(f"{__name__}:shout", "Shout.", own_parser=True)}
)


def test_a_verb_of_another_distribution_arrives_through_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its group takes its place among ours: commands run, help lists them."""
    found = metadata.EntryPoint("learn", f"{__name__}:ELSEWHERE", ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda **_: metadata.EntryPoints([found]))

    assert call(["learn", "shout", "left", "right"]) == Exit.OK
    assert capsys.readouterr().out == "LEFT RIGHT\n"
    assert call(["learn", "--help"]) == Exit.OK
    assert "shout" in capsys.readouterr().out
