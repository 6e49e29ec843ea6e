"""Processes are asked for their stacks from outside, and only those that answer are asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.pool.stack_requests import _as_faulthandler, ask_stacks, catches, state_of, use_of
from paceline.records.place import place_in_stacks
from paceline.records.standing import stack_signal

ANSWERS = """
import faulthandler, re, sys
faulthandler.register(int(sys.argv[1]), file=open(sys.argv[2], "w"), all_threads=True, chain=False)
print("ready", flush=True); re.match(r"(a+)+$", "a" * 60 + "b")
"""
SLEEPS = "print('ready', flush=True); import time; time.sleep(60)"


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """The file of a process."""
    path = tmp_path / "stacks"
    path.touch()
    return path


@pytest.fixture
def holds_gil(tmp_path: Path, stacks: Path) -> Iterator[int]:
    """A process that answers; C code holds its interpreter."""
    script = tmp_path / "held.py"
    script.write_text(ANSWERS)
    yield from _started([str(script), str(stack_signal()), str(stacks)])


@pytest.fixture
def has_no_handler() -> Iterator[int]:
    """A process that the signal would kill."""
    yield from _started(["-c", SLEEPS])


def _started(arguments: list[str]) -> Iterator[int]:
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_process_whose_interpreter_is_held_by_c_code_says_its_line(holds_gil: int, stacks: Path) -> None:
    """Twice, and each time only what it wrote now."""
    for _ in range(2):
        answer = ask_stacks({holds_gil: stacks})[holds_gil]

        place = place_in_stacks(answer)
        assert place is not None
        assert (Path(place.path).name, place.line) == ("held.py", 4)
        assert answer.count("Current thread") == 1


def test_a_process_without_a_handler_is_not_signaled(has_no_handler: int, stacks: Path) -> None:
    """A real-time signal would kill it."""
    assert ask_stacks({has_no_handler: stacks}, patience_s=0.3) == {}
    assert not catches(has_no_handler, stack_signal())
    assert state_of(has_no_handler) == "S"


def test_a_stopped_process_does_not_answer_and_is_seen_to_be_stopped(holds_gil: int, stacks: Path) -> None:
    """It gets no signal, which it would answer much later."""
    os.kill(holds_gil, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while state_of(holds_gil) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)

    assert ask_stacks({holds_gil: stacks}, patience_s=0.3) == {}
    assert state_of(holds_gil) == "T"
    os.kill(holds_gil, signal.SIGCONT)
    assert len(ask_stacks({holds_gil: stacks})) == 1
    assert stacks.read_text().count("Current thread") == 1


def test_a_process_that_is_gone_has_used_nothing_and_has_no_state(stacks: Path) -> None:
    """It may end between two looks."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert use_of(process.pid).pids == ()
    assert state_of(process.pid) == ""
    assert ask_stacks({process.pid: stacks}, patience_s=0.1) == {}


def test_the_output_of_py_spy_reads_as_that_of_faulthandler() -> None:
    """Its frames also come innermost first."""
    head = 'Process 7: python\n\nThread 7 (idle): "MainThread"\n'
    told = f"{head}    hang (/home/me/train.py:12)\n    <module> (/home/me/train.py:30)\n"

    place = place_in_stacks(_as_faulthandler(told))

    assert place is not None
    assert (place.line, place.function) == (12, "hang")
    assert _as_faulthandler("Error: permission denied") == ""
