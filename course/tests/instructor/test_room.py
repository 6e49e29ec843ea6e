"""A room of machines: what doctor said on each, in one table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.cli.main import call

GOOD = "  ok    python        3.12.1\n  note  data          no Fashion-MNIST\n\neverything is there\n"


def test_machines_that_are_not_ready_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is missing; an empty file is no machine that is ready."""
    (tmp_path / "a.txt").write_text(GOOD)
    (tmp_path / "b.txt").write_text("  no    python        3.9\n  ok    data          here\n")
    (tmp_path / "c.txt").write_text("bash: paceline: not found\n")

    assert call(["learn", "instructor", "room", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "b: python: 3.9" in out
    assert "c: no line of doctor" in out
    assert "1 of 3 machines are ready" in out


def test_a_machines_file_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither by its name nor by what it says; a pipe is not waited for."""
    (tmp_path / "a\x1b[2J.txt").write_text("  no    py\x1b[2J  x\n  no    data  \x1b[2J gone\n")
    os.mkfifo(tmp_path / "b.txt")

    assert call(["learn", "instructor", "room", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "data: gone" in out


def test_a_room_that_is_ready_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A note is no obstacle. Without a folder, it says what to run; without files, that there are none."""
    (tmp_path / "a.txt").write_text(GOOD)

    assert call(["learn", "instructor", "room", str(tmp_path)]) == 0
    assert call(["learn", "instructor", "room"]) == 0
    assert "paceline learn doctor >" in capsys.readouterr().out
    assert call(["learn", "instructor", "room", str(tmp_path / "none")]) == 2
