"""Messages between a fork server and its clients: a pickled object in a frame, with open files beside it.

Both ends belong to one user and come from one `socketpair`, so reading a pickle is safe here.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_HEADER = struct.Struct("!I")
_MOST_HANDLES = 64


@dataclass(frozen=True)
class Start:
    """Client to server: start a process. The message carries its standard input, output and error, then `handles`.

    Attributes:
        target: `module:function`; called with `given` and the numbers of its handles. It returns the exit code.
        given: for the function.
        env: the whole environment.
        cwd: the working directory.
        argv: `sys.argv`.
        path: `sys.path`; None for that of `python -m` in the working directory.
        blocked: signals that are blocked when the function begins.
        name: of the process, for `top` and `ps -o comm`; 15 characters at most.
    """

    target: str
    given: bytes
    env: dict[str, str]
    cwd: str
    argv: tuple[str, ...]
    path: tuple[str, ...] | None = None
    blocked: frozenset[int] = frozenset()
    name: str = ""


@dataclass(frozen=True)
class Connect:
    """Client to server: serve another connection, whose end comes with the message."""


@dataclass(frozen=True)
class Kill:
    """Client to server: kill all processes of this connection; `Killed` says that they are gone."""


@dataclass(frozen=True)
class Ready:
    """Server to client, first on each connection.

    Attributes:
        fresh: why processes are fresh interpreters; empty where they are forked.
        settings: variables of the server's environment that libraries read when they are loaded.
    """

    fresh: str
    settings: dict[str, str]


@dataclass(frozen=True)
class Started:
    """Server to client: the process number that was asked for; 0 with `error` where the system refused it."""

    pid: int
    error: str = ""


@dataclass(frozen=True)
class Ended:
    """Server to client: a process has ended.

    Attributes:
        pid: its number.
        code: exit code; below 0 the signal that killed it.
        at_unix_s: when the server saw it.
    """

    pid: int
    code: int
    at_unix_s: float


@dataclass(frozen=True)
class Killed:
    """Server to client: no process of this connection is left."""


def send(connection: socket.socket, message: object, handles: Sequence[int] = ()) -> None:
    """Send a message and copies of open files.

    Raises:
        OSError: the other end is gone.
    """
    content = pickle.dumps(message)
    socket.send_fds(connection, [_HEADER.pack(len(content))], list(handles))
    connection.sendall(content)


def receive(connection: socket.socket) -> tuple[Any, list[int]] | None:
    """The next message and the open files that came with it; None once the other end is gone."""
    try:
        header, handles, _, _ = socket.recv_fds(connection, _HEADER.size, _MOST_HANDLES)
        content = bytearray(header)
        (length,) = _HEADER.unpack(header) if len(header) == _HEADER.size else (0,)
        while len(content) < _HEADER.size + length:
            part = connection.recv(min(1 << 20, _HEADER.size + length - len(content)))
            if not part:
                return None
            content += part
    except ConnectionError:
        return None
    return (pickle.loads(content[_HEADER.size :]), handles) if length else None
