"""Keep a copy of what workers write to stderr, without anybody noticing.

torchrun lets workers write straight to its own stderr, and keeps nothing. A root-cause card needs the last lines, so
here stderr goes to `stderr.log` and from there to the same place, byte for byte and without prefix. Where stderr is a
terminal, workers get a terminal too (progress bars ask), through a pseudo-terminal. Stdout is left alone.

Streams that the user redirects or tees are torchrun's business, and not touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Protocol

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, Std

_POLL_S = 0.05
_CHUNK = 1 << 16
_LAST_WORDS_S = 0.5
"""A process that a worker left behind may hold the terminal open; we wait so long for more, then go."""


class _Copier(Protocol):
    def stop(self) -> None: ...


class CapturedLogs(DefaultLogsSpecs):
    """torchrun's layout of logs, and stderr kept in it as well as shown."""

    def __init__(
        self,
        log_dir: str,
        redirects: Std | dict[int, Std],
        tee: Std | dict[int, Std],
        local_ranks_filter: set[int] | None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._copiers: list[_Copier] = []

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Called by the agent for each attempt, before workers start."""
        self.stop()
        chosen: LogsDest = super().reify(envs)
        for local_rank, path in chosen.stderrs.items():
            error_file = chosen.error_files[local_rank]
            if error_file == os.devnull or path not in ("", os.devnull):
                continue
            log = Path(error_file).with_name("stderr.log")
            shown = path == ""  # else --local-ranks-filter hides this rank
            if shown and sys.stderr.isatty():
                terminal = TerminalCopier(log)
                self._copiers.append(terminal)
                chosen.stderrs[local_rank] = terminal.name
            else:
                log.touch()
                chosen.stderrs[local_rank] = str(log)
                if shown:
                    self._copiers.append(FileCopier(log))
        return chosen

    def stop(self) -> None:
        """Show what is left of the last attempt. The workers have ended."""
        for copier in self._copiers:
            copier.stop()
        self._copiers.clear()


class FileCopier:
    """Shows what is appended to a file, soon after it was written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._pending = b""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="paceline-stderr", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show the rest and end."""
        self._ended.set()
        self._thread.join()
        self._file.close()

    def _follow(self) -> None:
        while not self._ended.wait(_POLL_S):
            self._copy()
        self._copy()
        show(self._pending)

    def _copy(self) -> None:
        """Whole lines, so that ranks do not cut into each other's; half a line only when no more of it comes."""
        fresh = b""
        while chunk := self._file.read(_CHUNK):
            fresh += chunk
        if not fresh:
            show(self._pending)
            self._pending = b""
            return
        text = self._pending + fresh
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        show(text[:end])
        self._pending = text[end:]


class TerminalCopier:
    """A pseudo-terminal for one worker's stderr; what arrives is shown and kept.

    Attributes:
        name: the path that a worker opens.
    """

    def __init__(self, log: Path) -> None:
        self._log = log.open("wb", buffering=0)
        self._master, self._slave = os.openpty()
        self.name = os.ttyname(self._slave)
        _like_terminal(self._slave)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="paceline-stderr", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show the rest and end."""
        self._ended.set()
        self._thread.join()
        os.close(self._slave)
        os.close(self._master)
        self._log.close()

    def _follow(self) -> None:
        give_up = float("inf")
        while time.monotonic() < give_up:
            if self._ended.is_set() and give_up == float("inf"):
                give_up = time.monotonic() + _LAST_WORDS_S
            readable, _, _ = select.select([self._master], [], [], _POLL_S)
            if not readable:
                if self._ended.is_set():
                    return
                continue
            try:
                chunk = os.read(self._master, _CHUNK)
            except OSError:
                return
            with contextlib.suppress(OSError):  # a full disk must not silence the worker
                self._log.write(chunk)
            show(chunk)


def show(data: bytes) -> None:
    """Write bytes to our stderr as they are."""
    if not data:
        return
    with contextlib.suppress(OSError, ValueError):  # nobody reads on: the workers go on all the same
        if hasattr(sys.stderr, "buffer"):
            sys.stderr.buffer.write(data)
        else:
            sys.stderr.write(data.decode(errors="replace"))
        sys.stderr.flush()


def _like_terminal(slave: int) -> None:
    """As wide as ours, and passing bytes on unchanged: the real terminal adds its own carriage returns."""
    with contextlib.suppress(OSError, termios.error, ValueError):
        mode = termios.tcgetattr(slave)
        mode[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        size = fcntl.ioctl(sys.stderr.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
