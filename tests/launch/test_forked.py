"""A function in a fork of this process: its answer, its deaths, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from paceline.launch.forked import Died, call_forked

Stage = Callable[[str], None]


def call(function: Callable[[Stage], bytes], log: Path, waiting: Callable[[str, float], None] | None = None) -> object:
    """With its output in a file."""
    with log.open("wb") as file:
        return call_forked(function, output=file.fileno(), waiting=waiting or (lambda stage, seconds: None))


def test_the_answer_comes_back_and_what_was_printed_goes_to_the_file(tmp_path: Path, capfd) -> None:
    """A long answer, too; nothing reaches this process's own output."""

    def work(stage: Stage) -> bytes:
        sys.stdout.write("printed\n")
        os.system("echo from a child")
        return b"x" * 300_000

    found = call(work, tmp_path / "log")

    assert found == b"x" * 300_000
    assert set((tmp_path / "log").read_text().split("\n")) == {"printed", "from a child", ""}
    assert capfd.readouterr() == ("", "")


def _exits(stage: Stage) -> bytes:
    stage("exiting")
    os._exit(7)


def _killed(stage: Stage) -> bytes:
    stage("dying")
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def _raises(stage: Stage) -> bytes:
    raise KeyError("told in the file")


def _ends_with_a_child(stage: Stage) -> bytes:
    """A process that it started holds the pipe, the output and the group."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(3)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (_exits, Died("exiting", 7, None)),
        (_killed, Died("dying", None, signal.SIGKILL)),
        (_raises, Died("", 1, None)),
        (_ends_with_a_child, Died("", 3, None)),
    ],
)
def test_a_death_without_an_answer_is_told_with_what_was_done(
    function: Callable[[Stage], bytes], found: Died, tmp_path: Path
) -> None:
    """By its own exit, by a signal, by an exception; also when a grandchild lives on, which is ended."""
    before = psutil.Process().children()

    assert call(function, tmp_path / "log") == found
    assert psutil.Process().children() == before
    if function is _raises:
        assert "told in the file" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("busy", [False, True])
def test_whoever_waits_can_be_interrupted_and_nothing_is_left(busy: bool, tmp_path: Path) -> None:
    """A fork that hangs is ended, with what it started; whatever it does with signals."""

    def work(stage: Stage) -> bytes:
        stage("hanging")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "new").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        (tmp_path / "new").rename(tmp_path / "sleeper")
        while True:
            time.sleep(0 if busy else 600)

    def interrupt(stage: str, seconds: float) -> None:
        if (tmp_path / "sleeper").exists() or seconds > 30:
            raise KeyboardInterrupt

    before = psutil.Process().children()
    with pytest.raises(KeyboardInterrupt):
        call(work, tmp_path / "log", interrupt)

    assert psutil.Process().children() == before
    assert not psutil.pid_exists(int((tmp_path / "sleeper").read_text())) or _is_dead(tmp_path)


def _is_dead(folder: Path) -> bool:
    """Killed, if not yet taken away by the process that inherited it."""
    try:
        return psutil.Process(int((folder / "sleeper").read_text())).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
