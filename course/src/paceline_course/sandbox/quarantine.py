"""A quarantine: a command that runs foreign code, with everything that it starts, in a corner of the system of its own.

    run_quarantined([sys.executable, "-P", "-m", "paceline", ...], scratch)

Inside there is a network with nothing but itself, a list of processes of its own, a scratch folder in memory with a
limited number of files, and nothing else to write to. All of it ends with the command, and also when the caller is
killed: then the kernel kills the first process inside, and with that one all others.

Three processes stand in a row. The caller starts a *keeper* (a fresh Python, so it does not matter what the caller has
imported or which threads it has); the keeper makes the namespaces and starts the *first* process inside; that one
starts the command and buries whoever dies. Each dies with the one before it, and passes signals on to the one after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from paceline.parallel.exit import die_with_parent
from paceline.pool.mount_view import MISSING, PROCESSES, Room, adopt_orphans, enter, furnish, gain_nothing, possible
from paceline.records.errors import Exit, PacelineError
from paceline_course.sandbox.foreign_files import remove_foreign

INSIDE = "PACELINE_QUARANTINE"
"""The variable that tells a process that it is inside; its value names the pieces that are missing, with commas."""
_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = signal.SIGQUIT
"""Tells the keeper to kill everything inside."""
_KEPT = ("PATH", "HOME", "LANG", "LC_", "TERM", "COLUMNS", "VIRTUAL_ENV", "PYTHON", "LD_LIBRARY_PATH", "TZ", "XDG_")
"""Beginnings of the names of variables that a judge needs."""
_PATIENCE_S = 5.0
_UNFINISHED = 125
_LONGEST_PLACE = 60
"""A socket's name has to fit into 107 characters, and Python puts some of its own into the temporary folder."""


def run_quarantined(
    command: Sequence[str],
    scratch: Path,
    *,
    env: Mapping[str, str] | None = None,
    writes: Sequence[Path] = (),
    size_bytes: int = 1 << 30,
    files: int = 20_000,
) -> int:
    """Run a command inside, with this process's input, output and working directory, and wait for its end.

    SIGINT, SIGTERM and SIGHUP of this process go to the command; SIGQUIT ends everything inside at once. Call it in the
    main thread. What cannot be had here is left out, and `gaps` says so, inside and outside.

    Args:
        command: program and arguments. A Python should get `-P`: the working directory may hold foreign modules.
        scratch: an empty folder, or one to be made. Inside, it is the temporary folder; it is empty again in the end.
        env: the whole environment; this process's by default.
        writes: folders outside that the command may write to; all others are read-only.
        size_bytes: of all files in scratch; they take memory.
        files: how many there may be, folders included.

    Returns:
        The command's exit code; 128 + n when signal n ended it, as shells say it.

    Raises:
        PacelineError: scratch is not empty, a folder is missing, or nothing could be started.
    """
    room = Room(_empty(scratch), tuple(_folder(each) for each in writes), size_bytes, files)
    environment = dict(os.environ if env is None else env)
    short = len(str(room.scratch)) <= _LONGEST_PLACE
    environment["TMPDIR"] = str(room.scratch) if short or not Path("/dev/shm").is_dir() else "/dev/shm"
    # torch would say of each connection that nobody could be asked for the name of its other end.
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    told = {
        "parent": os.getpid(),
        "command": [str(each) for each in command],
        "scratch": str(room.scratch),
        "writes": [str(each) for each in room.writes],
        "size_bytes": size_bytes,
        "files": files,
    }
    try:
        with _passing_on() as receivers:
            # A session of its own: Ctrl-C reaches this process only, and nobody inside can type into the terminal.
            keeper = subprocess.Popen(_keeper(json.dumps(told)), env=environment, start_new_session=True)
            receivers.append(keeper.send_signal)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [*_PASSED, _AT_ONCE])
            code = _wait(keeper)
    finally:
        remove_foreign(*room.scratch.iterdir())  # where it was no folder in memory
    if code == _UNFINISHED:
        raise PacelineError(
            "the quarantine could not be set up", why="the line above says what failed", exit_code=Exit.FAILED
        )
    return code if code >= 0 else 128 - code


def judging_environment() -> dict[str, str]:
    """The environment as far as a judge needs it: what it runs can read that, and has no business with more."""
    return {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}


def gaps() -> list[str]:
    """What a quarantine does not do on this system, in words; inside, what this one does not do."""
    missing = lacking()
    if missing is None:
        missing = frozenset(MISSING) - _offered()
    return [words for piece, words in MISSING.items() if piece in missing]


def lacking() -> frozenset[str] | None:
    """The pieces that are missing inside; None outside."""
    said = os.environ.get(INSIDE)
    return None if said is None else frozenset(filter(None, said.split(",")))


@cache
def _offered() -> frozenset[str]:
    """The pieces that this system gives, tried in a fresh process: this one may have threads."""
    if sys.platform != "linux":
        return frozenset()
    tried = subprocess.run(_keeper("{}"), capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return frozenset(tried.stdout.decode().split()) & frozenset(MISSING)


def _keeper(told: str) -> list[str]:
    return [sys.executable, "-P", "-m", "paceline_course.sandbox.quarantine", told]


def _empty(scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    if any(scratch.iterdir()):
        raise PacelineError(f"{scratch} is not empty", hint="give a folder for what is thrown away in the end")
    return scratch.resolve()


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise PacelineError(f"{path} is no folder", hint="make it first: nothing can be made beside it from inside")
    return path.resolve()


@contextlib.contextmanager
def _passing_on() -> Iterator[list[Callable[[int], Any]]]:
    """Signals go to whoever is in the list, instead of ending this process. They are held back until it is filled."""
    receivers: list[Callable[[int], Any]] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        for receive in receivers:
            receive(number)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*_PASSED, _AT_ONCE])
    handlers = {}
    for number in (*_PASSED, _AT_ONCE):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            with contextlib.suppress(ValueError):  # not the main thread
                handlers[number] = signal.signal(number, pass_on)
    try:
        yield receivers
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(keeper: subprocess.Popen[bytes]) -> int:
    try:
        return keeper.wait()
    finally:
        if keeper.poll() is None:  # an exception came in between
            keeper.send_signal(_AT_ONCE)
            with contextlib.suppress(subprocess.TimeoutExpired):
                keeper.wait(_PATIENCE_S)
            keeper.kill()
            keeper.wait()


def _keep(told: Mapping[str, Any]) -> int:
    """The keeper: make the namespaces, start the first process inside, wait for it."""
    room = Room(Path(told["scratch"]), tuple(Path(each) for each in told["writes"]), told["size_bytes"], told["files"])
    pieces = possible()
    os.environ[INSIDE] = ",".join(piece for piece in MISSING if piece not in pieces)
    enter(pieces)
    die_with_parent(told["parent"])  # now, as the kernel forgets it when rights change
    adopt_orphans()
    gone, mine = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine)
        _guarded(lambda: _be_first(told["command"], pieces, room, gone))
    os.close(gone)
    _relay(child, _PASSED)
    signal.signal(_AT_ONCE, lambda *_: os.kill(child, signal.SIGKILL))
    _hear_signals()
    code = _bury_until(child)
    if PROCESSES not in pieces:
        _kill_children()
    return code


def _be_first(command: Sequence[str], pieces: frozenset[str], room: Room, gone: int) -> int:
    """The first process inside: furnish, start the command, wait for it. Orphans come to it, or to the keeper."""
    die_with_parent()
    if select.select([gone], [], [], 0)[0]:  # the keeper's end is closed: it died before
        return _UNFINISHED
    furnish(pieces, room)
    gain_nothing()
    child = os.fork()
    if child == 0:
        _guarded(lambda: _execute(command, alone=PROCESSES in pieces))
    _relay(child, _PASSED)
    signal.signal(_AT_ONCE, signal.SIG_IGN)
    _hear_signals()
    return _bury_until(child)


def _bury_until(child: int) -> int:
    """Take whoever has ended, until it is this one; its exit code."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return _shell_code(status)


def _execute(command: Sequence[str], *, alone: bool) -> NoReturn:
    os.setpgid(0, 0)
    if not alone:
        die_with_parent()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    _hear_signals()
    os.execvp(command[0], list(command))


def _relay(child: int, numbers: Sequence[int]) -> None:
    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)


def _hear_signals() -> None:
    """The caller has held them back, so that none is lost before there is somebody to take it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*_PASSED, _AT_ONCE])


def _kill_children() -> None:
    """Where the kernel does not do it: children, and theirs, which become ours."""
    with contextlib.suppress(ChildProcessError, OSError):
        while True:
            for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)


def _shell_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _guarded(action: Callable[[], int]) -> NoReturn:
    """End this process with the code that the action gives; say why where it fails."""
    code = _UNFINISHED
    try:
        code = action()
    except BaseException as error:  # noqa: BLE001  nothing of this process may go on
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
    os._exit(code)


def _main(told: Mapping[str, Any]) -> int:
    if told:
        return _keep(told)
    sys.stdout.write(" ".join(possible()) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    _guarded(lambda: _main(json.loads(sys.argv[1])))
