"""Signals to whole jobs: a checkpoint on request, and the way out before there is one."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interruptions import below, processes_of, wait_for_step
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Checkpoint, End

TASK = Path(__file__).parents[1] / "files" / "dataset_task.py"


def start(run: Path, *flags: str) -> subprocess.Popen[str]:
    """A training on two ranks, with two loader processes each, in a session of its own."""
    command = [sys.executable, "-m", "paceline", "train", str(TASK), "--workers", "2", "--global-batch", "32", *flags]
    return subprocess.Popen(
        [*command, "--run-dir", str(run)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def requested(run: Path) -> list[int]:
    """Steps of checkpoints that were asked for."""
    events = EventStream(RunDir(run).events())
    return [each.step for each in events if isinstance(each, Checkpoint) and each.reason == "requested"]


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["launcher", "one rank", "all"])
def test_a_save_signal_writes_a_checkpoint_and_the_training_goes_on(whom: str, tmp_path: Path) -> None:
    """To whomever it is sent, loader processes included, as `scancel --signal=USR1` does; and the run ends as ever."""
    run = tmp_path / "r"
    process = start(run, "--epochs", "60", "--checkpoint-every", "1000000")
    wait_for_step(run, 9, process)
    server = below(process)[0]
    ranks = [each for each in processes_of(run) if each.ppid() == server.pid]
    everybody = [process, *below(process)]
    chosen = {"launcher": [process], "one rank": ranks[:1], "all": everybody}[whom]

    deadline = time.monotonic() + 120
    for each in chosen:
        os.kill(each.pid, signal.SIGUSR1)
    while not requested(run) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    done = requested(run)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1]

    assert done
    assert process.returncode == 143
    assert "checkpoint at step" in said


@pytest.mark.slow
def test_a_second_ctrl_c_before_any_checkpoint_says_so_and_its_command_works(tmp_path: Path) -> None:
    """Ranks that cannot answer: the first Ctrl-C would wait for them."""
    run = tmp_path / "with a space"
    process = start(run, "--epochs", "1", "--checkpoint-every", "1000000", "--eval-every", "1000000")
    wait_for_step(run, 1, process)
    for each in processes_of(run):
        if each.pid != process.pid:
            os.kill(each.pid, signal.SIGSTOP)

    process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    command = said.rpartition("next: ")[2].strip()
    again = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, timeout=120, check=False
    )

    assert process.returncode == 130
    assert "ended at once: there is no checkpoint yet" in said
    assert again.returncode == 0, again.stderr
    assert "there is no checkpoint to resume from: this run starts from the beginning" in again.stdout
    *_, end = (event for event in EventStream(RunDir(run).events()) if isinstance(event, End))
    assert end.reason == "finished"
