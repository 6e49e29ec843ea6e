"""Keep a copy of what workers write, without changing what users or workers see.

torchrun lets workers write straight to its own stdout and stderr, and keeps nothing. Here each worker writes to a
pipe, or to a pseudo-terminal where ours is a terminal (progress bars and colors ask). One thread passes the bytes on,
without prefix, and keeps a copy below torchrun's log directory.

Where our stdout and stderr are the same place (a terminal, `2>&1`), a worker's two streams share one channel, so that
their order is exactly the order of its writes; the copy is `output.log`. Elsewhere nobody can see an order between the
two, and the copies are `stdout.log` and `stderr.log`. Streams that the user redirects or tees are torchrun's, and not
touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, Std

from paceline.launch.bounded_log import BoundedLog

_HALF_LINE_S = 0.05
"""The beginning of a line is shown after so long without its end, as a prompt needs it."""
_CHUNK = 1 << 16
_SIZE_EVERY_S = 0.5
_LAST_WORDS_S = 0.5
"""How long an attempt waits at most for the rest: a process that a worker left behind may write on without end."""

Show = Callable[[bytes], None]


class CapturedLogs(DefaultLogsSpecs):
    """torchrun's layout of logs, with stdout and stderr kept in it as well as shown.

    Attributes:
        attempt: the directory of the newest attempt; None before the first, and when no logs are kept.
    """

    def __init__(
        self,
        log_dir: str,
        redirects: Std | dict[int, Std],
        tee: Std | dict[int, Std],
        local_ranks_filter: set[int] | None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self.attempt: Path | None = None
        self._pump: OutputPump | None = None

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Called by the agent for each attempt, before workers start."""
        self.stop()
        chosen: LogsDest = super().reify(envs)
        channels: list[Channel] = []
        for local_rank, error_file in chosen.error_files.items():
            if error_file == os.devnull:
                continue
            folder = Path(error_file).parent
            self.attempt = folder.parent
            self._capture(chosen, local_rank, folder, channels)
        if channels:
            self._pump = OutputPump(channels)
        return chosen

    def stop(self) -> None:
        """Show what is left of the last attempt. The workers have ended."""
        if self._pump is not None:
            self._pump.stop()
            self._pump = None

    def set_aside(self) -> Path | None:
        """Rename the newest attempt's directory: torch would delete it when it starts the same attempt again."""
        self.stop()
        if self.attempt is None:
            return None
        number = 1
        while (aside := self.attempt.with_name(f"{self.attempt.name}-before-{number}")).exists():
            number += 1
        with contextlib.suppress(OSError):
            self.attempt.rename(aside)
            return aside
        return self.attempt

    @staticmethod
    def _capture(chosen: LogsDest, local_rank: int, folder: Path, channels: list[Channel]) -> None:
        out, err = chosen.stdouts[local_rank], chosen.stderrs[local_rank]
        if out == err == "" and _same_place():
            both = Channel(folder / "output.log", sys.stderr)
            channels.append(both)
            chosen.stdouts[local_rank] = chosen.stderrs[local_rank] = both.name
            return
        for paths, name, stream in (
            (chosen.stdouts, "stdout.log", sys.stdout),
            (chosen.stderrs, "stderr.log", sys.stderr),
        ):
            if paths[local_rank] in ("", os.devnull):  # the latter when --local-ranks-filter hides the rank
                channel = Channel(folder / name, stream if paths[local_rank] == "" else None)
                channels.append(channel)
                paths[local_rank] = channel.name


class Channel:
    """The target of one worker's stream: a terminal where `stream` is one, else a pipe.

    Args:
        log: where a copy of all bytes is kept.
        stream: where they are shown; None shows nothing.

    Attributes:
        name: the path that the agent opens for the worker.
        reader: our end, which never blocks.
        writer: the other end, kept open so that the path stays valid.
        log: the copy.
    """

    def __init__(self, log: Path, stream: TextIO | None) -> None:
        self._terminal = stream if stream is not None and stream.isatty() and _may_open_terminals() else None
        if self._terminal is not None:
            self.reader, self.writer = os.openpty()
            self.name = os.ttyname(self.writer)
            _like_terminal(self.writer, self._terminal)
        else:
            self.reader, self.writer = os.pipe()
            self.name = f"/proc/{os.getpid()}/fd/{self.writer}"
        os.set_blocking(self.reader, False)
        self.log = BoundedLog(log)
        self._show = shower(stream) if stream is not None else None
        self._pending = b""  # the beginning of a line that waits for its end

    def pass_on(self) -> None:
        """Keep and show what has arrived."""
        try:
            fresh = os.read(self.reader, _CHUNK)
        except OSError:
            return
        self.log.write(fresh)
        if self._show is None:
            return
        if self._terminal is not None:
            self._show(fresh)
            return
        # Whole lines, so that ranks do not cut into each other's.
        text = self._pending + fresh
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if end:
            self._show(text[:end])
        self._pending = text[end:]
        if len(self._pending) > _CHUNK:
            self.show_pending()

    def show_pending(self) -> None:
        """Show the beginning of a line without its end."""
        if self._pending and self._show is not None:
            self._show(self._pending)
        self._pending = b""

    def follow_size(self) -> None:
        """Be as wide as the terminal that it stands for."""
        if self._terminal is not None:
            _take_size(self.writer, self._terminal)

    def close(self) -> None:
        """Close all ends and the log."""
        os.close(self.reader)
        os.close(self.writer)
        self.log.close()


class OutputPump:
    """Passes on what arrives in channels until it is stopped."""

    def __init__(self, channels: list[Channel]) -> None:
        self._channels = channels
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-output", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Pass on the rest and close everything."""
        self._ended.set()
        self._thread.join()
        for channel in self._channels:
            channel.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for channel in self._channels:
                selector.register(channel.reader, selectors.EVENT_READ, channel)
            sized = deadline = 0.0
            while True:
                ended = self._ended.is_set()
                ready = selector.select(0.0 if ended else _HALF_LINE_S)
                for key, _ in ready:
                    key.data.pass_on()
                now = time.monotonic()
                if not ready:
                    for channel in self._channels:
                        channel.show_pending()
                if ended:
                    deadline = deadline or now + _LAST_WORDS_S
                    if not ready or now > deadline:
                        break
                if now - sized > _SIZE_EVERY_S:
                    sized = now
                    for channel in self._channels:
                        channel.follow_size()
        for channel in self._channels:
            channel.show_pending()


def shower(stream: TextIO) -> Show:
    """Writes bytes to a stream as they are. When nobody reads it any more, workers go on all the same."""
    gone = False
    try:
        target: int | None = stream.fileno()
    except (OSError, ValueError):
        target = None

    def show(data: bytes) -> None:
        nonlocal gone
        if gone:
            return
        try:
            if target is None:
                stream.buffer.write(data)
                stream.flush()
                return
            while data:
                try:
                    data = data[os.write(target, data) :]
                except BlockingIOError:  # somebody made our own stream non-blocking
                    time.sleep(0.01)
        except (OSError, ValueError):
            gone = True

    return show


def _same_place() -> bool:
    """True if our stdout and stderr are the same open terminal, pipe or file."""
    try:
        out, err = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


def _may_open_terminals() -> bool:
    """Not in a session leader without a terminal of its own: it would acquire the first that it opens."""
    if os.getsid(0) != os.getpid():
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _like_terminal(slave: int, stream: TextIO) -> None:
    """Make a terminal as wide as ours that passes bytes on unchanged: the real one adds its own carriage returns."""
    with contextlib.suppress(OSError, termios.error, ValueError):
        mode = termios.tcgetattr(slave)
        mode[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, mode)
    _take_size(slave, stream)


def _take_size(slave: int, stream: TextIO) -> None:
    with contextlib.suppress(OSError, termios.error, ValueError):
        size = fcntl.ioctl(stream.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
