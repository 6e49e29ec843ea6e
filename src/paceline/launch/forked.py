"""Run a function in a short-lived fork of this process, and wait for its answer.

The fork has every module that is loaded here, torch above all, and so begins at once. What it loads, builds and breaks
goes with it: this process keeps no model, and CUDA is initialized in the fork only. It ends in every case: with its
answer, with this process, and when the wait is interrupted; and so does what it started, as long as that stays in its
process group.

This process must not have used torch's thread pool or CUDA before.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import torch

from paceline.parallel.exit import die_with_parent

_POLL_S = 0.05
_STAGE, _ANSWER = b"s", b"a"
_BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Died:
    """The fork ended without an answer.

    Attributes:
        stage: what it was doing, as it said itself.
        exit_code: of the process; None if a signal killed it.
        signal: that killed it.
    """

    stage: str
    exit_code: int | None
    signal: signal.Signals | None


def call_forked(
    function: Callable[[Callable[[str], None]], bytes], *, output: int, waiting: Callable[[str, float], None]
) -> bytes | Died:
    """Call `function(stage)` in a fork, and return what it returns.

    Args:
        function: gets a function to say what it is doing.
        output: a file descriptor to which the fork's standard output and error go.
        waiting: is called about 20 times a second with the stage and the seconds since the start.

    Raises:
        KeyboardInterrupt, or whatever a signal handler raises here: the fork and its group are gone by then.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    # A signal between the fork and the `try` would leave the fork behind.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads: numpy's pool handles forks
            child = os.fork()
        if child == 0:
            os.close(read_end)
            _live(function, parent, write_end, output)
        try:
            with contextlib.suppress(OSError):
                os.setpgid(child, child)  # also done there; whichever is first
            os.close(write_end)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return _wait(child, read_end, waiting)
        finally:
            _end(child)
            os.close(read_end)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cuda_devices() -> int:
    """CUDA devices of this machine, counted in a fork, since counting may initialize CUDA for the process."""
    if torch.version.cuda is None and torch.version.hip is None:
        return 0
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        found = call_forked(
            lambda _: str(torch.cuda.device_count()).encode(), output=nowhere, waiting=lambda stage, seconds: None
        )
    finally:
        os.close(nowhere)
    return int(found) if isinstance(found, bytes) else 0


def _live(function: Callable[[Callable[[str], None]], bytes], parent: int, pipe: int, output: int) -> NoReturn:
    """The fork's whole life; it never returns into the frames that it was forked from."""
    code = 1
    try:
        os.setpgid(0, 0)  # a Ctrl-C of the terminal goes to the parent alone, which ends this group
        die_with_parent(parent)
        for number in _BLOCKED:
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # a scheduler's request to save goes to all processes
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        # The parent's streams may be anything (a notebook's, a test's).
        sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115  # as long as it lives
        sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        answer = function(lambda stage: _send(pipe, _STAGE, stage.encode()))
        _send(pipe, _ANSWER, answer)
        code = 0
    except BaseException:  # noqa: BLE001  # it goes where the output goes; the parent sees a death
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _send(pipe: int, kind: bytes, content: bytes) -> None:
    message = memoryview(kind + len(content).to_bytes(8, "big") + content)
    while message:
        message = message[os.write(pipe, message) :]


def _wait(child: int, pipe: int, waiting: Callable[[str, float], None]) -> bytes | Died:
    began, stage, received = time.monotonic(), "", b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        ended = False
        while True:
            ready = selector.select(0.0 if ended else _POLL_S)
            new = os.read(pipe, 1 << 16) if ready else b""
            received += new
            while len(received) >= 9 and len(received) >= 9 + (size := int.from_bytes(received[1:9], "big")):
                kind, content, received = received[:1], received[9 : 9 + size], received[9 + size :]
                if kind == _ANSWER:
                    return content
                stage = content.decode()
            if ended and not new:
                break
            # A process that it started may hold the other end of the pipe: the end of the fork itself counts.
            ended = ended or os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if ready and not new and not ended:  # it closed the pipe and goes on
                time.sleep(_POLL_S)
            waiting(stage, time.monotonic() - began)
    found = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # `_end` takes it away
    assert found is not None
    if found.si_code == os.CLD_EXITED:
        return Died(stage, found.si_status, None)
    return Died(stage, None, signal.Signals(found.si_status))


def _end(child: int) -> None:
    """End the fork and its group, and wait for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    while True:
        try:
            os.waitpid(child, 0)
            return
        except ChildProcessError:
            return
        except KeyboardInterrupt:
            continue
