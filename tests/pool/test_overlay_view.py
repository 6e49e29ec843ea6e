"""Whatever is written in the view is gone afterwards, and all who join see the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paceline.pool.overlay_view import join, overlay_view
from paceline.pool.processes import fork_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux")


def within(holder: int, function) -> int:
    """Exit code of a child that runs a function in the view."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            join(holder)
            function()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_is_written_is_seen_by_all_inside_and_by_nobody_outside(tmp_path: Path) -> None:
    """Also what is replaced or deleted; only the scratch folder is real."""
    scratch, outside = tmp_path / "scratch", tmp_path / "work"
    scratch.mkdir()
    outside.mkdir()
    (outside / "model.pt").write_text("old")
    (outside / "notes.txt").write_text("kept")

    def writes() -> None:
        (outside / "model.pt").write_text("new")
        (outside / "notes.txt").unlink()
        (outside / "runs").mkdir()
        (scratch / "result").write_text("done")

    def reads() -> None:
        assert (outside / "model.pt").read_text() == "new"
        assert sorted(each.name for each in outside.iterdir()) == ["model.pt", "runs"]

    with fork_server().session() as session:
        try:
            with overlay_view(session, scratch) as holder:
                assert within(holder, writes) == 0
                assert within(holder, reads) == 0
        except OSError as error:
            pytest.skip(f"this system forbids it: {error}")

    assert (outside / "model.pt").read_text() == "old"
    assert sorted(each.name for each in outside.iterdir()) == ["model.pt", "notes.txt"]
    assert (scratch / "result").read_text() == "done"
