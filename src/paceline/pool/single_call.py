"""Call a function in a short-lived process, and wait for its answer.

What it loads, builds and breaks goes with the process: this one keeps no model, and CUDA is initialized there only. The
process ends in every case: with its answer, with this process, and when the wait is interrupted; and so does what it
started, as long as that stays in its process group.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait

from paceline.pool.processes import ForkServer, Surroundings

_SERVE = "paceline.pool.single_call:serve"
_POLL_S = 0.05
_STAGE, _ANSWER = b"s", b"a"


@dataclass(frozen=True)
class Died:
    """The process ended without an answer.

    Attributes:
        stage: what it was doing, as it said itself.
        exit_code: of the process; None if a signal killed it.
        signal: that killed it.
    """

    stage: str
    exit_code: int | None
    signal: signal.Signals | None


def call_apart(
    server: ForkServer,
    function: str,
    argument: bytes = b"",
    *,
    output: int,
    waiting: Callable[[str, float], None] = lambda stage, seconds: None,
    env: Mapping[str, str] | None = None,
) -> bytes | Died:
    """Call `function(argument, stage)` in a process of its own, and return what it returns.

    Args:
        server: that starts the process.
        function: `module:function`; gets a function to say what it is doing, and returns bytes.
        argument: for it.
        output: a file descriptor to which the standard output and error of the process go.
        waiting: is called about 20 times a second with the stage and the seconds since the start.
        env: the environment of the process; by default this process's.

    Raises:
        KeyboardInterrupt, or whatever a signal handler raises here: the process and its group are gone by then.
    """
    began, stage, received = time.monotonic(), "", b""
    read_end, write_end = os.pipe()
    try:
        with server.session() as session:
            try:
                given = pickle.dumps((function, argument))
                pid = session.start(
                    _SERVE, given, handles=(write_end,), output=(output, output), within=Surroundings(env)
                )
            finally:
                os.close(write_end)
            while True:
                # A process that it started may hold the other end of the pipe: the end of the process itself counts.
                ended = pid in session.codes
                ready = read_end in wait([read_end, session.fileno()], 0.0 if ended else _POLL_S)
                new = os.read(read_end, 1 << 16) if ready else b""
                received += new
                while len(received) >= 9 and len(received) >= 9 + (size := int.from_bytes(received[1:9], "big")):
                    kind, content, received = received[:1], received[9 : 9 + size], received[9 + size :]
                    if kind == _ANSWER:
                        return content
                    stage = content.decode()
                if ended and not new:
                    code = session.codes[pid]
                    return Died(stage, code, None) if code >= 0 else Died(stage, None, signal.Signals(-code))
                session.wait(_POLL_S if ready and not new else 0.0)  # it may close the pipe and go on
                waiting(stage, time.monotonic() - began)
    finally:
        os.close(read_end)


def serve(given: bytes, pipe: int) -> int:
    """The process: call the function and send its answer."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # a scheduler's request to save goes to all processes
        signal.signal(number, signal.SIG_IGN)
    target, argument = pickle.loads(given)
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    _send(pipe, _ANSWER, function(argument, lambda stage: _send(pipe, _STAGE, stage.encode())))
    return 0


def _send(pipe: int, kind: bytes, content: bytes) -> None:
    message = memoryview(kind + len(content).to_bytes(8, "big") + content)
    while message:
        message = message[os.write(pipe, message) :]
