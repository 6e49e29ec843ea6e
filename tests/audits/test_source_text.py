"""Lines of the script are read where they are there, and never at any price."""

from __future__ import annotations

import os

from paceline.audits.source_text import text_at
from tests.audits.observed_events import at


def test_a_line_and_those_before_it_are_read(tmp_path):
    """With their newlines."""
    script = tmp_path / "train.py"
    script.write_text("a = 1\nb = 2\nc = 3\n")

    assert text_at(at(2, str(script))) == "b = 2\n"
    assert text_at(at(2, str(script)), before=5) == "a = 1\nb = 2\n"


def test_what_cannot_be_read_is_none(tmp_path):
    """No file, no such line, no text, no regular file, no place."""
    binary, pipe = tmp_path / "data.py", tmp_path / "pipe.py"
    binary.write_bytes(b"\xff\xfe\x00")
    os.mkfifo(pipe)

    assert text_at(None) is None
    assert text_at(at(1, str(tmp_path / "none.py"))) is None
    assert text_at(at(99, str(binary))) is None
    assert text_at(at(0, str(binary))) is None
    assert text_at(at(1, str(pipe))) is None
    assert text_at(at(1, "<stdin>")) is None
    assert text_at(at(1, "nul\x00byte.py")) is None
