"""Processes that start at once: the client's side of the fork server (`fork_server.py`).

    with fork_server().session() as session:     # all its processes are gone at the end of the block
        pid = session.start("package.module:function", b"given")
        session.wait(60.0)                       # until something ends
        session.codes[pid]

A command has one server, and keeps it for all its jobs; it can lend the server to a command that it starts. The server
loads torch while the caller goes on, which itself never needs to.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from paceline.pool.fork_server import FOR_CHILDREN, START_METHOD, Server, settings_of, unsafe
from paceline.pool.wire import Connect, Ended, Kill, Killed, Ready, Start, Started, receive, send
from paceline.records.errors import Exit, PacelineError

LENT = "PACELINE_FORK_SERVER"
"""The variable that lends a server to a command: the number of an inherited connection and its inode."""
TORCH = "paceline.pool.preload"
"""The module that imports what every rank needs."""
_TAIL, _LAST_WORDS_S = 1500, 2.0


class ServerGone(PacelineError):  # noqa: N818
    """The fork server has ended, and its processes with it."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "the fork server of this command has ended, and its processes with it",
            why=why or "it was killed, perhaps for memory (dmesg says whether the kernel did it)",
            hint=f"start it again; with {START_METHOD}=spawn workers are fresh processes",
            exit_code=Exit.FAILED,
        )


@dataclass(frozen=True)
class Surroundings:
    """The environment, directory and module path of a new process.

    Attributes:
        env: the whole environment; None for this process's.
        argv: `sys.argv`.
        path: `sys.path`; None for that of `python -m` here.
        blocked: signals that are blocked when its function begins.
        name: of the process, for `top` and `ps -o comm`; 15 characters at most.
    """

    env: Mapping[str, str] | None = None
    argv: Sequence[str] = ("",)
    path: Sequence[str] | None = None
    blocked: Sequence[signal.Signals] = ()
    name: str = ""


class Session:
    """Processes of one call or job. They are killed, with what they started, when the session closes.

    Args:
        connection: to the server, of this session alone.
        server: which one.

    Attributes:
        codes: exit codes of processes that have ended, in the order of their ends; below 0 the signal that killed one.
        ends_unix_s: when they ended.
    """

    def __init__(self, connection: socket.socket, server: ForkServer) -> None:
        self._connection, self._server = connection, server
        self.codes: dict[int, int] = {}
        self.ends_unix_s: dict[int, float] = {}
        self.ready: Ready = self._receive(Ready)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Readable when a process has ended."""
        return self._connection.fileno()

    def start(
        self,
        target: str,
        given: bytes = b"",
        *,
        handles: Sequence[int] = (),
        output: tuple[int, int] | None = None,
        within: Surroundings | None = None,
    ) -> int:
        """Start a process.

        Args:
            target: `module:function`, called with `given` and the numbers of its handles; it returns the exit code.
            given: for the function.
            handles: numbers of open files that it gets copies of.
            output: its standard output and error; by default this process's. Its standard input is empty.
            within: its environment, arguments and signals.

        Returns:
            its number; it leads a session and a process group of that number.

        Raises:
            OSError: the system refuses another process.
            ServerGone: the server has ended.
        """
        within = within or Surroundings()
        environment = dict(os.environ if within.env is None else within.env)
        environment.pop(LENT, None)
        here = Start(
            target=target,
            given=given,
            env=environment,
            cwd=_here(),
            argv=tuple(within.argv),
            path=None if within.path is None else tuple(within.path),
            blocked=frozenset(within.blocked),
            name=within.name,
        )
        # Ctrl-C between the two messages would leave a process that nobody knows.
        with held(), open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123
            streams = [each if _is_open(each) else nothing.fileno() for each in output or (1, 2)]
            self._send(here, [nothing.fileno(), *streams, *handles])
            started = self._receive(Started)
        if not started.pid:
            raise OSError(f"no further process can be started: {started.error}")
        return int(started.pid)

    def wait(self, timeout_s: float) -> None:
        """Wait until a process ends, or some time at most; `codes` then has all that have ended.

        Raises:
            ServerGone: the server has ended.
        """
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while poll.poll(max(0.0, timeout_s) * 1000):
            self._note(self._next())
            timeout_s = 0.0

    def send_signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process, unless it has ended."""
        if pid not in self.codes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill all processes and whatever they started in their groups, and wait until they are gone."""
        with held():
            self._send(Kill())
            self._receive(Killed)

    def close(self) -> None:
        """Kill what is left, and leave the server."""
        with contextlib.suppress(ServerGone):
            self.kill()
        self._connection.close()

    def _send(self, message: object, handles: Sequence[int] = ()) -> None:
        try:
            send(self._connection, message, handles)
        except OSError:
            raise ServerGone(self._server.said()) from None

    def _receive(self, kind: type) -> Any:
        while not isinstance(message := self._next(), kind):
            self._note(message)
        return message

    def _next(self) -> Any:
        received = receive(self._connection)
        if received is None:
            raise ServerGone(self._server.said())
        return received[0]

    def _note(self, message: object) -> None:
        if isinstance(message, Ended):
            self.codes[message.pid], self.ends_unix_s[message.pid] = message.code, message.at_unix_s


class ForkServer:
    """A server, as the process sees it that started it or to which it was lent.

    Args:
        connection: to it; the server of whoever started it ends when this closes.
        process: the server; None for one that was lent, or that is a fork of this process.
        log: what it prints.
        fork: its number, where it is a fork of this process.
    """

    def __init__(
        self,
        connection: socket.socket,
        process: subprocess.Popen[bytes] | None = None,
        log: IO[bytes] | None = None,
        fork: int | None = None,
    ) -> None:
        self._connection, self._process, self._log, self._fork = connection, process, log, fork
        self._lock = threading.Lock()
        self.pid = os.getpid()
        """Of the process that this object belongs to: a fork of it must not use the same connection."""

    def session(self) -> Session:
        """Processes for one call or job; waits until the server has loaded its modules.

        Raises:
            ServerGone: it has ended.
        """
        return Session(self._connect(), self)

    @contextlib.contextmanager
    def lent(self) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
        """Within the block a command can be started that uses this server.

        Yields:
            variables for its environment, and the number of a connection that it has to inherit.
        """
        with self._connect() as connection:
            number = connection.fileno()
            yield {LENT: f"{number}:{os.fstat(number).st_ino}"}, (number,)

    def close(self) -> None:
        """End the server, if this process started it, and wait for that; leave it otherwise."""
        self._connection.close()
        if self._process is not None:
            self._process.kill()  # while it loads modules it does not look; its children die with it
            self._process.wait()
        if self._fork is not None:
            os.waitpid(self._fork, 0)
            self._fork = None

    def has_ended(self) -> bool:
        """Its end of the connection is closed."""
        poll = select.poll()
        poll.register(self._connection, 0)
        return bool(poll.poll(0))

    def said(self) -> str:
        """The end of what the server printed."""
        if self._log is None or self._process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):  # it closes its connection before it says why
            self._process.wait(_LAST_WORDS_S)
        self._log.seek(0)
        return self._log.read()[-_TAIL:].decode(errors="replace").strip()

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, self._lock, held():
            try:
                send(self._connection, Connect(), [theirs.fileno()])
            except OSError:
                ours.close()
                raise ServerGone(self.said()) from None
        return ours


_current: tuple[ForkServer, dict[str, str]] | None = None
_choosing = threading.Lock()


def fork_server(env: Mapping[str, str] | None = None, modules: Sequence[str] = (TORCH,)) -> ForkServer:
    """The server of this process: the one it has, the one it was lent, or a new one, which loads in its own time.

    Args:
        env: of the processes, by default this process's. What libraries read of it when they are loaded (threads,
            allocator) has to be the server's; otherwise another server takes its place.
        modules: that a new one imports; they must not start threads.
    """
    global _current
    env = dict(os.environ if env is None else env)
    lent = os.environ.pop(LENT, None)
    with _choosing:
        if lent is not None and (borrowed := _borrow(lent)) is not None:
            _current = borrowed
        if _current is not None:
            server, settings = _current
            if server.pid == os.getpid() and settings == settings_of(env) and not server.has_ended():
                return server
            if server.pid == os.getpid():
                server.close()
        _current = _start(env, modules), settings_of(env)
        return _current[0]


def close_fork_server() -> None:
    """End the server of this process, if it has one."""
    global _current
    with _choosing:
        if _current is not None and _current[0].pid == os.getpid():
            _current[0].close()
        _current = None


atexit.register(close_fork_server)


def _start(env: dict[str, str], modules: Sequence[str]) -> ForkServer:
    ours, theirs = socket.socketpair()
    log = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the server
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    owner = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    numbers = (str(theirs.fileno()), str(owner))
    program = [sys.executable, *flags, "-u", "-m", "paceline.pool.fork_server", *numbers, *modules]
    with theirs, held():
        process = subprocess.Popen(
            program,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ForkServer(ours, process, log)


def fork_server_of_this() -> ForkServer:
    """A server that is a fork of this process: for one that has loaded torch, and has no threads and no CUDA yet."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        ours.close()
        _be_server(theirs)
    theirs.close()
    return ForkServer(ours, fork=child)


def _be_server(connection: socket.socket) -> NoReturn:
    Server(connection, unsafe()).run()


def _borrow(lent: str) -> tuple[ForkServer, dict[str, str]] | None:
    """The server at the other end of an inherited connection; None where that was not inherited, or is gone."""
    number, _, inode = lent.partition(":")
    try:
        if os.fstat(int(number)).st_ino != int(inode):
            return None
        connection = socket.socket(fileno=int(number))
        connection.set_inheritable(False)
        received = receive(connection)
    except (OSError, ValueError):
        return None
    if received is None:
        return None
    return ForkServer(connection), received[0].settings


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Let signals wait, which would leave half of a message; a process that is started begins with them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_CHILDREN)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return "/"


def _is_open(handle: int) -> bool:
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True
