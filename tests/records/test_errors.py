"""The one way to say no: three parts at most, an exit code, and safe travel between processes."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.records.errors import Exit, PacelineError, choices, render

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40)


@given(what=st.text(), why=st.text(), hint=st.text(), code=st.integers(0, 255))
def test_an_error_survives_pickling(what: str, why: str, hint: str, code: int) -> None:
    """Ranks send their errors to the launcher; nothing may be lost on the way."""
    error = PacelineError(what, why=why, hint=hint, exit_code=code)

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is PacelineError
        assert (again.what, again.why, again.hint, again.exit_code) == (what, why, hint, code)
        assert str(again) == str(error)


@given(what=TEXT, why=TEXT, hint=TEXT)
def test_a_message_has_at_most_three_parts_each_on_its_line(what: str, why: str, hint: str) -> None:
    """What, why and next, in this order; empty parts take no line."""
    lines = render(what, why, hint).split("\n")

    assert lines[0] == f"error: {what}"
    assert [line[:8] for line in lines[1:]] == ["  why:  "] * bool(why) + ["  next: "] * bool(hint)
    assert len(lines) <= 3


def test_an_error_reads_as_users_see_it() -> None:
    """str() is the whole message."""
    error = PacelineError("the file is gone", why="it was moved", hint="paceline data fetch x")

    text = str(error)

    assert text == "error: the file is gone\n  why:  it was moved\n  next: paceline data fetch x"
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("OK", 0),
        ("FAILED", 1),
        ("USAGE", 2),
        ("DIVERGED", 3),
        ("CANNOT_WRITE", 4),
        ("INCONCLUSIVE", 5),
        ("INTERRUPTED", 130),
        ("TERMINATED", 143),
    ],
)
def test_exit_codes_are_permanent(name: str, code: int) -> None:
    """Scripts of users depend on the numbers; 130 and 143 are the shell's for SIGINT and SIGTERM."""
    assert Exit[name] == code
    assert len(Exit) == 8


def test_choices_list_legal_values() -> None:
    """Comma-separated, of anything."""
    assert choices(["a", 1, 2.5]) == "a, 1, 2.5"
