"""A function in a process of its own: its answer, its deaths, and nothing left behind."""

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

from paceline.pool.processes import fork_server
from paceline.pool.single_call import Died, call_apart

Stage = Callable[[str], None]


def call(
    function: Callable[[bytes, Stage], bytes],
    log: Path,
    waiting: Callable[[str, float], None] = lambda stage, seconds: None,
) -> object:
    """With its output in a file, and the folder of that as argument."""
    name, argument = f"tests.pool.test_single_call:{function.__name__}", str(log.parent).encode()
    with log.open("wb") as file:
        return call_apart(fork_server(), name, argument, output=file.fileno(), waiting=waiting)


def answers(argument: bytes, stage: Stage) -> bytes:
    """A long answer, after some words."""
    sys.stdout.write("printed\n")
    os.system("echo from a child")
    return b"x" * 300_000


def exits(argument: bytes, stage: Stage) -> bytes:
    """End the process."""
    stage("exiting")
    os._exit(7)


def is_killed(argument: bytes, stage: Stage) -> bytes:
    """By a signal."""
    stage("dying")
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def raises(argument: bytes, stage: Stage) -> bytes:
    """An exception that nobody catches."""
    raise KeyError("told in the file")


def ends_with_a_child(argument: bytes, stage: Stage) -> bytes:
    """A process that it started holds the pipe, the output and the group."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
    note(argument, child)
    os._exit(3)


def hangs(argument: bytes, stage: Stage) -> bytes:
    """With a child, and deaf to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(argument, subprocess.Popen(["sleep", "600"]).pid)
    while True:
        time.sleep(0)


def note(folder: bytes, pid: int) -> None:
    """Write down a process, all at once."""
    new = Path(folder.decode()) / "new"
    new.write_text(str(pid))
    new.rename(new.with_name("child"))


def is_dead(folder: Path) -> bool:
    """Whether the noted process is gone: killed, if not yet taken away by whoever inherited it."""
    try:
        return psutil.Process(int((folder / "child").read_text())).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_answer_comes_back_and_what_was_printed_goes_to_the_file(tmp_path: Path, capfd) -> None:
    """A long answer, too; nothing reaches this process's own output."""
    assert call(answers, tmp_path / "log") == b"x" * 300_000
    assert set((tmp_path / "log").read_text().split("\n")) == {"printed", "from a child", ""}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (exits, Died("exiting", 7, None)),
        (is_killed, Died("dying", None, signal.SIGKILL)),
        (raises, Died("", 1, None)),
        (ends_with_a_child, Died("", 3, None)),
    ],
)
def test_a_death_without_an_answer_is_told_with_what_was_done(
    function: Callable[[bytes, Stage], bytes], found: Died, tmp_path: Path
) -> None:
    """By its own exit, by a signal, by an exception; also when a grandchild lives on, which is ended."""
    assert call(function, tmp_path / "log") == found
    if function is raises:
        assert "told in the file" in (tmp_path / "log").read_text()
    if function is ends_with_a_child:
        assert is_dead(tmp_path)


def test_whoever_waits_can_be_interrupted_and_nothing_is_left(tmp_path: Path) -> None:
    """A function that hangs is ended, with what it started; whatever it does with signals."""

    def interrupt(stage: str, seconds: float) -> None:
        if (tmp_path / "child").exists() or seconds > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(hangs, tmp_path / "log", interrupt)

    assert is_dead(tmp_path)
