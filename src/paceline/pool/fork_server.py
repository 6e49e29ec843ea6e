"""The fork server: a process that has imported torch once, and forks ranks from itself.

Importing torch and torch._dynamo takes seconds of processor time; a fork takes milliseconds and shares the pages. The
server runs no thread, initializes no CUDA and computes nothing, so that its children are as good as fresh processes.
Each child has its own environment, working directory, session, standard streams and random state, and dies with the
server, which ends with its owner.

Where a fork would be unsafe, the same server starts a fresh interpreter instead, and `Ready.fresh` says why.

Clients talk to it through sockets that they have inherited or that another client has handed over (`wire.py`); it
listens nowhere. Processes belong to the connection that asked for them, and are killed when it closes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from paceline.parallel.exit import die_with_parent, leave
from paceline.pool.mount_view import adopt_orphans
from paceline.pool.wire import Connect, Ended, Kill, Killed, Ready, Start, Started, receive, send

START_METHOD = "PACELINE_START_METHOD"
"""The variable that forces fresh interpreters: `spawn`."""
DEVICE_FILES = ("/dev/nvidia", "/dev/kfd")
FOR_CHILDREN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Schedulers send these to every process of a job. The server leaves them to its children and ends with its owner."""
_READ_WHEN_LOADED = (
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_TUNABLES", "LD_"),
    *("TORCH_", "ATEN_", "ONEDNN_", "DNNL_", "PYTHONHASHSEED", "PYTHONPATH", START_METHOD),
)


def settings_of(env: dict[str, str]) -> dict[str, str]:
    """The variables that libraries or Python read when they are loaded: a fork comes too late to change them."""
    return {name: value for name, value in env.items() if name.startswith(_READ_WHEN_LOADED)}


def main() -> NoReturn:
    """Serve the connection whose number is the first argument, with the modules that further ones name.

    The second is the owner's process number, or 0 where the thread that started this process may end before.
    """
    handle, owner, modules = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if owner:
        die_with_parent(owner)  # meanwhile nobody looks at the connection
    fresh = load(modules)
    die_with_parent(still=False)  # the end of the connection is better: what ranks have started is killed as well
    Server(socket.socket(fileno=handle), fresh).run()


def load(modules: Sequence[str]) -> str:
    """Import what processes will need, and return why they cannot be forked; empty where they can."""
    if os.environ.get(START_METHOD, "") == "spawn":
        return f"{START_METHOD}=spawn"
    if sys.platform != "linux":
        return f"{sys.platform} has no safe fork"
    gc.disable()  # the collector would walk the growing heap again and again: a quarter of the time
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # children's collectors leave these objects alone, so that their pages stay shared
    return unsafe()


def unsafe() -> str:
    """Why this process must not be forked; empty where it may."""
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or _holds_device():
        return "CUDA was initialized while modules were loaded"
    threads = threading.active_count()
    with contextlib.suppress(OSError):
        threads = max(threads, len(os.listdir("/proc/self/task")))  # noqa: PTH208  # those of C libraries too
    return f"loaded modules started {threads - 1} thread(s)" if threads > 1 else ""


def _holds_device() -> bool:
    """True if this process has opened a GPU driver. Counting devices does so, and torch still reports no CUDA."""
    with contextlib.suppress(OSError):
        opened = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_symlink()]  # noqa: PTH115
        return any(each.startswith(DEVICE_FILES) for each in opened)
    return False


class Server:
    """Starts processes for its clients.

    Args:
        owner: the first connection; the server ends when it closes.
        fresh: why processes are fresh interpreters; empty forks them.
    """

    def __init__(self, owner: socket.socket, fresh: str) -> None:
        self.owner, self.fresh = owner, fresh
        self._pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._of: dict[socket.socket, dict[int, bool]] = {}
        """By connection: its processes, and whether each has ended. Ended ones are collected when it closes: until then
        no other process can get their number, and what they left in their groups can be killed."""
        self._wake, wake = socket.socketpair()
        for end in (self._wake, wake):
            end.setblocking(False)
        self._wakes = wake
        signal.pthread_sigmask(signal.SIG_BLOCK, FOR_CHILDREN)
        adopt_orphans()  # so that `_kill` can wait for them as well
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._adopt(owner)

    def run(self) -> NoReturn:
        """Serve until the owner is gone."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        self._wake.recv(4096)
                    self._note_ends()
                elif key.fileobj in self._of:  # else it was closed meanwhile
                    self._serve(key.fileobj)

    def _adopt(self, connection: socket.socket) -> None:
        self._of[connection] = {}
        self._selector.register(connection, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            send(connection, Ready(self.fresh, settings_of(dict(os.environ))))

    def _serve(self, connection: socket.socket) -> None:
        received = receive(connection)
        try:
            if received is None:
                self._close(connection)
                return
            message, handles = received
            if isinstance(message, Connect):
                self._adopt(socket.socket(fileno=handles[0]))
            elif isinstance(message, Kill):
                self._kill(connection)
                send(connection, Killed())
            elif isinstance(message, Start):
                send(connection, self._start(connection, message, handles))
        except OSError:  # the client is gone
            self._close(connection)

    def _start(self, connection: socket.socket, start: Start, handles: list[int]) -> Started:
        try:
            pid = os.fork()
        except OSError as error:
            return Started(0, error.strerror or str(error))
        finally:
            if os.getpid() == self._pid:
                for handle in handles:
                    os.close(handle)
        if pid == 0:
            self._be_child(start, handles)
        self._of[connection][pid] = False
        return Started(pid)

    def _be_child(self, start: Start, handles: list[int]) -> NoReturn:
        """The child's whole life: it never returns into the server's frames."""
        try:
            os.setsid()  # Ctrl-C of the terminal goes to the owner; and a kill takes along what this one starts
            die_with_parent(self._pid)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for each in (self._wake, self._wakes, *self._of):
                each.close()
            for target, handle in enumerate(handles[:3]):
                os.dup2(handle, target)
                os.close(handle)
            with contextlib.suppress(OSError):
                Path("/proc/self/comm").write_text(start.name or "paceline")
            os.chdir(start.cwd)
            if self.fresh:
                _execute(start, handles[3:])
            _settle(start)
            signal.pthread_sigmask(signal.SIG_SETMASK, start.blocked)
            call(start, handles[3:])
        except BaseException:  # noqa: BLE001  # whatever it is: it goes where the output goes, and the parent sees it
            traceback.print_exc()
            leave(1)

    def _note_ends(self) -> None:
        for connection, processes in list(self._of.items()):
            for pid in [pid for pid, ended in processes.items() if not ended]:
                code = _end_of(pid)
                if code is None:
                    continue
                processes[pid] = True
                with contextlib.suppress(OSError):
                    send(connection, Ended(pid, code, time.time()))

    def _kill(self, connection: socket.socket) -> None:
        """Kill the processes of a connection, with what is left of their groups, and collect them."""
        processes = self._of[connection]
        for pid in (pid for pid, ended in processes.items() if _keeps_ends() or not ended):
            for kill in (os.killpg, os.kill):  # it may not have made its group yet
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
        for pid, ended in processes.items():
            if ended and not _keeps_ends():
                continue
            _, status = os.waitpid(pid, 0)
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-pid, 0)  # what was in its group
            if not ended:
                with contextlib.suppress(OSError):
                    send(connection, Ended(pid, os.waitstatus_to_exitcode(status), time.time()))
        processes.clear()

    def _close(self, connection: socket.socket) -> None:
        for each in list(self._of) if connection is self.owner else [connection]:
            self._kill(each)
        if connection is self.owner:
            os._exit(0)
        self._selector.unregister(connection)
        del self._of[connection]
        connection.close()


def _keeps_ends() -> bool:
    """True if Python can see that a process has ended without reaping it. A reaped process frees its number."""
    return hasattr(os, "waitid")  # Python has none on macOS before 3.13


def _end_of(pid: int) -> int | None:
    """The exit code of a process, below 0 the signal that killed it; None while it runs."""
    if not _keeps_ends():
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if seen is None:
        return None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


def call(start: Start, handles: Sequence[int]) -> NoReturn:
    """Call the target of a start and leave with its exit code."""
    module, _, name = start.target.partition(":")
    leave(int(getattr(importlib.import_module(module), name)(start.given, *handles) or 0))


def _settle(start: Start) -> None:
    """Give a forked child what a fresh process has of its own."""
    os.environ.clear()
    os.environ.update(start.env)
    sys.argv[:] = start.argv
    sys.path[:] = start.path if start.path is not None else (start.cwd, *sys.path[1:])
    sys.modules["__main__"] = types.ModuleType("__main__")  # else loader processes would load the server's
    gc.enable()
    # Python's own generator is seeded anew after a fork; others would draw the same numbers in every process.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def _execute(start: Start, handles: Sequence[int]) -> NoReturn:
    """Replace this process by a fresh interpreter that calls the target (`fresh_process.py`)."""
    with tempfile.TemporaryFile() as told:
        pickle.dump(start, told)
        told.seek(0)
        numbers = [told.fileno(), *handles]
        for number in numbers:
            os.set_inheritable(number, True)
        signal.pthread_sigmask(signal.SIG_SETMASK, start.blocked)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
        program = [sys.executable, *flags, "-u", "-m", "paceline.pool.fresh_process"]
        os.execve(sys.executable, [*program, *map(str, numbers)], start.env)


if __name__ == "__main__":
    # Pickles name `paceline.pool.fork_server`, so the work is done there and not in `__main__`.
    importlib.import_module("paceline.pool.fork_server").main()
