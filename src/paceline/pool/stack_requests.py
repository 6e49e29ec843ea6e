"""Ask running processes where they are, from outside: their stacks, their state, and what they use.

A process answers by faulthandler (`records.standing`), so that its interpreter need not be free. It is signaled only if
the kernel says that it catches the signal: by default a real-time signal kills.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from paceline.records.standing import stack_signal

PATIENCE_S = 3.0
_EVERY_S = 0.05
_SPY_S = 5.0
_SPY_FRAME = re.compile(r"^ +(?P<function>.+?) \((?P<path>.+):(?P<line>\d+)\)$", re.MULTILINE)
_SPY_THREAD = re.compile(r"^Thread .*$", re.MULTILINE)


@dataclass(frozen=True)
class ProcessUse:
    """Resources that a process and its descendants have used since they started.

    Attributes:
        cpu_s: processor time.
        moved_bytes: read and written by system calls, files and most sockets included.
        pids: of the process, if it runs, and of those below it.
    """

    cpu_s: float = 0.0
    moved_bytes: int = 0
    pids: tuple[int, ...] = ()


def use_of(pid: int) -> ProcessUse:
    """Measure the resources that a process and its descendants have used."""
    cpu, moved, pids = 0.0, 0, []
    with contextlib.suppress(psutil.Error):  # it has ended
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                cpu += times.user + times.system
                pids.append(each.pid)
            with contextlib.suppress(psutil.Error, AttributeError):  # not every system counts bytes
                counted = each.io_counters()
                moved += counted.read_chars + counted.write_chars
    return ProcessUse(cpu, moved, tuple(pids))


def main_thread_s(pid: int) -> float:
    """Processor time of the main thread of a process; 0.0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does, as R, S, D, T or Z; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def catches(pid: int, number: int) -> bool:
    """Return True if a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def ask_stacks(paths: Mapping[int, Path], patience_s: float = PATIENCE_S) -> dict[int, str]:
    """Signal processes and return the stacks that they write into their files.

    Args:
        paths: of the files, by process id.
        patience_s: how long one may take; one that does not answer is left out.
    """
    before: dict[int, int] = {}
    for pid, path in paths.items():
        if state_of(pid) not in ("", "T", "t", "Z") and catches(pid, stack_signal()):
            with contextlib.suppress(OSError):  # it has ended, or has not opened its file
                before[pid] = path.stat().st_size
                os.kill(pid, stack_signal())
    deadline, sizes = time.monotonic() + patience_s, dict(before)
    while time.monotonic() < deadline:
        time.sleep(_EVERY_S)
        now = {pid: _size(paths[pid]) for pid in before}
        if now == sizes and all(now[pid] > before[pid] for pid in before):  # complete when it has stopped growing
            break
        sizes = now
    return {pid: text for pid in before if (text := _from(paths[pid], before[pid]))}


def spy_stacks(pids: Collection[int]) -> dict[int, str]:
    """Stacks of processes that do not answer, in faulthandler's form, where py-spy is installed."""
    spy = shutil.which("py-spy")
    found = {}
    for pid in pids if spy else ():
        command = [str(spy), "dump", "--nonblocking", "--full-filenames", "--pid", str(pid)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # it is a second source: without it no line
            told = subprocess.run(command, capture_output=True, text=True, timeout=_SPY_S, check=False).stdout
            if text := _as_faulthandler(told):
                found[pid] = text
    return found


def _as_faulthandler(told: str) -> str:
    frames = _SPY_FRAME.sub(r'  File "\g<path>", line \g<line> in \g<function>', told)
    return _SPY_THREAD.sub("Thread 0x0 (most recent call first):", frames) if frames != told else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _from(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
