"""Leaving: the exit code that was asked for, and never an abort."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROUNDS = """
import os, sys
import torch, torch.distributed as dist
from paceline.parallel.exit import leave

def rank(number, store, code):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=3)
    total = torch.ones(1)
    dist.all_reduce(total)
    sys.stdout.write(f"{int(total)} ")  # not flushed: leaving has to
    leave(code)

for round in range(10):  # forked, since importing torch takes longer than all the rest
    code = 7 * (round % 2)
    ranks = []
    for number in range(3):
        process = os.fork()
        if not process:
            rank(number, f"{sys.argv[1]}/{round}", code)
        ranks.append(process)
    ends = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in ranks]
    if ends != [code] * 3:
        sys.exit(f"round {round}: {ends} instead of {code}")
"""


@pytest.mark.serial
def test_three_gloo_ranks_leave_with_their_code_ten_times_out_of_ten(tmp_path: Path) -> None:
    """No abort at interpreter exit, nothing on stderr, and buffered output is there, after success and failure."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": ""}

    done = subprocess.run(
        [sys.executable, "-c", ROUNDS, str(tmp_path)], capture_output=True, text=True, env=env, check=False, timeout=240
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 " * 30


def test_leaving_without_torch_does_not_load_it() -> None:
    """The launcher of a failed job leaves at once; nothing of atexit runs."""
    script = (
        "import atexit, sys\nfrom paceline.parallel.exit import leave\n"
        "atexit.register(print, 'atexit')\nprint('torch' in sys.modules, end='')\nleave(5)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (5, "False", "")


def test_a_closed_output_does_not_change_the_exit_code() -> None:
    """Flushing fails, leaving does not."""
    script = "import sys\nfrom paceline.parallel.exit import leave\nsys.stdout.close()\nleave(3)"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (3, "")


PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import os, sys, time
from paceline.parallel.exit import die_with_parent
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
''', str(os.getpid())], start_new_session=True)
time.sleep(600)
"""


def gone(pid: int, within_s: float) -> bool:
    """Whether a process ends in time; one that nobody collects counts as ended."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.serial
@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_process_dies_with_its_parent_however_that_dies() -> None:
    """Also in a session of its own, which a kill of the parent's group would miss."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())

    alive_before = not gone(child, 0.1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()

    assert alive_before
    assert gone(child, 20)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_process_whose_parent_has_died_already_ends_at_once() -> None:
    """Between the start and the request the launcher may be gone."""
    script = "from paceline.parallel.exit import die_with_parent\ndie_with_parent(1)\nprint('alive')"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
