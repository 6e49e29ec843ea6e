"""How a process ended, and what that usually means."""

from __future__ import annotations

import signal

_SIGNALS = {
    "SIGKILL": "nothing can catch it: usually the kernel ran out of memory, or a scheduler's limit was reached",
    "SIGSEGV": "a memory access went wrong in compiled code",
    "SIGABRT": "compiled code gave up: an assertion, a failed check, or an exception that nobody caught",
    "SIGBUS": "memory that is backed by a file could not be had: often /dev/shm or a disk is full",
    "SIGILL": "the processor does not know an instruction: the binary was built for a newer one",
    "SIGFPE": "an integer was divided by zero in compiled code",
    "SIGTERM": "somebody asked it to stop: a scheduler or a user",
    "SIGINT": "somebody pressed Ctrl-C",
    "SIGHUP": "its terminal was closed",
    "SIGPIPE": "the reader of its output went away",
    "SIGXCPU": "its limit of processor time was reached",
}

_BY_LAUNCHER = ("SIGTERM", "SIGINT")
"""Signals by which a launcher stops a rank. It sends SIGKILL after a grace period, but so do others at any time."""

_ADVICE = {
    "SIGKILL": "look for 'Out of memory' in the kernel's log (dmesg -T | tail); fewer workers or a smaller batch "
    "need less",
    "SIGSEGV": "run again with PYTHONFAULTHANDLER=1 to see where",
    "SIGABRT": "run again with PYTHONFAULTHANDLER=1 to see where; the lines above say which check failed",
    "SIGBUS": "df -h /dev/shm; give the container more shared memory, or use fewer loader workers",
    "SIGFPE": "run again with PYTHONFAULTHANDLER=1 to see where",
    "SIGTERM": "ask who sent it: a scheduler's time limit, or a person",
}


def signal_name(exit_code: int | None) -> str:
    """The name of the signal that killed a process, "" when none did or it was not seen to end."""
    if exit_code is None or exit_code >= 0:
        return ""
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def ending(exit_code: int | None, *, stopped: bool | None = None) -> str:
    """How a process ended: "exited with code 3", or "killed by SIGKILL (...)" with its usual meaning for -9.

    Args:
        exit_code: as `RankExit.exit_code`.
        stopped: as `RankExit.stopped`.
    """
    name = signal_name(exit_code)
    if not name:
        return f"exited with code {exit_code}"
    if stopped and name in _BY_LAUNCHER:
        return f"killed by {name} (the launcher stopped it)"
    meaning = _SIGNALS.get(name, "")
    if name == "SIGTERM" and stopped is None:
        meaning += ", or the launcher"
    return f"killed by {name} ({meaning})" if meaning else f"killed by {name}"


def advice(exit_code: int | None) -> str:
    """Advise on an end without an exception."""
    name = signal_name(exit_code)
    if name:
        return _ADVICE.get(name, "the end of the log may say more")
    if exit_code == 2:
        return "code 2 without an exception is usually a bad option, or a script that python could not open"
    return f"no exception was seen: look for sys.exit({exit_code}) or os._exit({exit_code}) in the script"
