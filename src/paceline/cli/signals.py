"""Signals of the command itself: one line and the documented exit code, from the first instruction to the last.

While modules are imported there is nothing to put in order, and an exception from a handler could be swallowed there
(an import runs callbacks whose exceptions Python prints and drops), so the process ends at once. Afterwards a signal
raises KeyboardInterrupt with its number, so that a verb can leave nothing half-written; a second one ends at once.
Ranks and the loop around them have handlers of their own (`parallel.rank_context`, `launch.local_job`).

Nothing here imports more than the standard library: this runs before everything else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_STOPS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal was closed"}
_importing = True
_told = False
_cleanups: list[Callable[[], None]] = []


def take_over() -> None:
    """Set handlers. A signal that whoever started this process ignores (nohup) stays ignored."""
    for number in _STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, nothing_to_save)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})  # blocked by a plan while this training started


def imported() -> None:
    """The verbs are there: from here on a signal raises KeyboardInterrupt."""
    global _importing
    _importing = False


def at_once() -> None:
    """The command is over: a signal only makes it end."""
    global _importing
    _importing = True


@contextlib.contextmanager
def cleaning(clean: Callable[[], None]) -> Iterator[None]:
    """Within the block: call `clean` also where a signal ends the process at once."""
    _cleanups.append(clean)
    try:
        yield
    finally:
        _cleanups.remove(clean)


def exit_code(stop: KeyboardInterrupt) -> int:
    """130 for Ctrl-C; 143 for SIGTERM and for a closed terminal, as of a job."""
    return 143 if stop.args and stop.args[0] in (signal.SIGTERM, signal.SIGHUP) else 130


def words(stop: KeyboardInterrupt) -> str:
    """Describe the signal in one line."""
    return _STOPS.get(stop.args[0] if stop.args else signal.SIGINT, "interrupted")


def nothing_to_save(number: int, frame: FrameType | None) -> None:
    """A save signal that meets no running training."""
    del frame
    _say(f"{signal.Signals(number).name}: there is nothing to save at this moment; going on")


def _stop(number: int, frame: FrameType | None) -> None:
    global _told
    stop = KeyboardInterrupt() if number == signal.SIGINT else KeyboardInterrupt(number)
    if _importing or _told or _in_import(frame):
        for each in (*reversed(_cleanups), sys.stdout.flush):
            with contextlib.suppress(Exception):
                each()
        _say(words(stop))
        os._exit(exit_code(stop))
    _told = True
    raise stop


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"\n{line}\n".encode())
