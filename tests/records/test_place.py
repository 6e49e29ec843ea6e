"""Which line of the user's code: read from what Python itself writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.records.place import Place, place_in_stacks, place_in_traceback, places_in

PROGRAM = """import faulthandler, json, sys, threading
def inner():
    if sys.argv[1] == "stacks":
        faulthandler.dump_traceback(all_threads=True)
    else:
        json.loads("{")
def outer():
    inner()
outer()
"""


@pytest.mark.parametrize(
    ("how", "find", "line"), [("raise", place_in_traceback, 6), ("stacks", place_in_stacks, 4)], ids=["raise", "stacks"]
)
def test_the_innermost_own_line_is_found_in_both_forms_that_python_writes(tmp_path: Path, how, find, line) -> None:
    """A traceback names it last, faulthandler first; frames of libraries below it do not count."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    text = subprocess.run([sys.executable, str(script), how], capture_output=True, text=True, check=False).stderr

    own = Place(path=str(script), line=line, function="inner")
    assert find(text) == own
    assert find(text, tmp_path) == own
    assert find(text, tmp_path / "elsewhere") is None
    assert [place.function for place in places_in(text) if place.path == str(script)] in (
        ["<module>", "outer", "inner"],
        ["inner", "outer", "<module>"],
    )


def test_a_text_without_frames_has_no_place() -> None:
    """As of a rank that had not started yet."""
    assert places_in("(it had not started yet)") == []
    assert place_in_traceback("") is place_in_stacks("") is None
