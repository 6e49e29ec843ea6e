"""Limits for code that nobody has read yet: a learner's answer, a submission.

A rank that is confined works in a folder of its own, as a user who owns nothing else where the caller is root, prints
into a file, and has limits on memory, on the size of a file, and on processes. Time is the caller's business. What
these limits cannot do on a given machine, `gaps` says in words.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from paceline.parallel.exit import die_with_parent
from paceline.pool.confinement import MARK
from paceline.pool.mount_view import can_enclose, closed, enclose, gain_nothing, installation
from paceline_course.sandbox import quarantine
from paceline_course.sandbox.foreign_files import is_modest, read_foreign, remove_foreign, remove_of_user

_FIRST_USER, _USERS = 61_200, 4_000
"""Numbers that no account has: systemd reserves them for users who live as long as a service."""
_SWEEPS, _PAUSE_S = 40, 0.02
_SHARED_MEMORY = Path("/dev/shm")
_PRINTED = 64
"""Of so many ranks the output is kept in any case."""


@dataclass(frozen=True)
class Limits:
    """What a confined rank may use.

    Attributes:
        folder: where it works; its output goes to `rank-<k>.out` in there.
        user: number of the user it becomes; None to stay who the caller is.
        memory_bytes: address space on top of what a fresh rank has.
        file_bytes: the largest file, its output included.
        processes: processes and threads of that user at once; of a caller who is not root, on top of those that run.
        reads: folders besides the installation that it needs.
        left_files: what may be in its folder after a call; of a folder with more only what was printed is kept.
        left_bytes: likewise.
    """

    folder: Path
    user: int | None = None
    memory_bytes: int = 4 << 30
    file_bytes: int = 64 << 20
    processes: int = 200
    reads: tuple[Path, ...] = ()
    left_files: int = 5_000
    left_bytes: int = 256 << 20

    def output(self, rank: int) -> Path:
        """What a rank printed."""
        return self.folder / f"rank-{rank}.out"

    def printed(self, rank: int, most_bytes: int = 1 << 20) -> str:
        """The beginning of what a rank printed; empty where it left no such file, or something else in its place."""
        return (read_foreign(self.output(rank), most_bytes) or b"").decode(errors="replace")

    def prepare(self) -> None:
        """Make the folder, and let the user that it is for write there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.user is None:
            return
        for path in (self.folder, *self.folder.rglob("*")):
            # With a second name it may be a file of ours, put there before.
            if path.is_dir() or path.lstat().st_nlink == 1:
                os.chown(path, self.user, self.user, follow_symlinks=False)

    def confine(self, rank: int) -> None:
        """Put this process under limits, for good.

        Raises:
            OSError: the system refuses; nobody's code may run then.
        """
        if self.user is not None:
            enclose([self.folder, *self.reads])
        _print_into(self.output(rank))
        os.chdir(self.folder)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_bytes, self.file_bytes))
        most = _address_space() + self.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        others = 0 if self.user is not None else _tasks_of(os.geteuid())
        many = others + self.processes
        with contextlib.suppress(ValueError, OSError):  # the system allows fewer already
            resource.setrlimit(resource.RLIMIT_NPROC, (many, many))
        os.environ["HOME"] = os.environ["TMPDIR"] = str(self.folder)
        tempfile.tempdir = None  # found out by the server of ranks, for itself
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # whoever runs out of memory, it is not the judge
        gain_nothing()
        if self.user is not None:
            os.setgroups([])
            os.setgid(self.user)
            os.setuid(self.user)
            die_with_parent()  # the kernel forgets it when the user changes

    def sweep(self, mark: str) -> bool:
        """Kill what is left of a call: all processes of its user, and all that carry its mark; then look at its files.

        Whoever fills the disk would else stop the call that comes next.

        Returns:
            Whether the folder is as it was left; what was too much is removed.
        """
        _kill_strays(self.user, mark)
        if self.user is not None:
            remove_of_user(_SHARED_MEMORY, self.user)
        folder = self.folder
        if folder.is_symlink() or not folder.is_dir() or is_modest(folder, self.left_files, self.left_bytes):
            return True
        kept = {self.output(rank).name for rank in range(_PRINTED)}
        with contextlib.suppress(OSError):  # locked by somebody with our rights
            remove_foreign(*(path for path in folder.iterdir() if path.name not in kept or not path.is_file()))
        return False


def free_user() -> int | None:
    """A user to run as, who has no process; None where the caller cannot become one.

    Only root can, and only where such a user can be let read Python, its packages and Paceline. Everything of that user
    is killed in the end, so nobody else may be it: services may have such numbers, too.
    """
    if os.geteuid() != 0 or (closed(installation()) and not can_enclose()):
        return None
    taken, known = _users(), _known_users()
    numbers = (_FIRST_USER + (os.getpid() + offset) % _USERS for offset in range(_USERS))
    return next((number for number in numbers if number not in taken and any(number in each for each in known)), None)


def gaps() -> list[str]:
    """What `Limits` cannot limit here, in words; less inside a quarantine than outside."""
    said = []
    if os.geteuid() != 0:
        said.append(f"answers run as you (user {os.geteuid()}): they can read and change your files")
    elif free_user() is None:
        folder = next(iter(closed(installation())))
        said.append(
            f"answers run as root: {folder} can be entered by its owner only, so another user could not read Python, "
            "and this system gives no process a view of its own; limits on processes do not bind root, and files "
            "outside the answer's folder are not protected"
        )
    if sys.platform != "linux":
        said.append("stray processes of an answer are not looked for: that takes Linux")
    if quarantine.lacking() is None:
        said.append(
            "outside a quarantine the network is not cut off, the number of files that an answer writes is not "
            "limited, and stray processes outlive a check that is killed"
        )
    else:
        said += quarantine.gaps()
    return said


def _kill_strays(user: int | None, mark: str) -> None:
    if user is not None:
        # In one system call, as that user: whoever kills one after the other is outrun by processes that fork.
        everything = ["/bin/sh", "-c", "kill -9 -1"]
        subprocess.run(everything, user=user, group=user, extra_groups=[], check=False)
    for _ in range(_SWEEPS if sys.platform == "linux" else 0):
        found = [pid for pid in _pids() if _belongs(pid, user, mark)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _print_into(path: Path) -> None:
    # Another rank may be at work there already, and may have put a link to a file of ours in its place.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    seen = os.fstat(file)
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1:
        raise OSError(errno.ELOOP, "not a file of this rank's own", str(path))
    os.ftruncate(file, 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    # What a rank printed before it was killed has to be there.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)


def _address_space() -> int:
    """Bytes that this process has mapped."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 16 << 30


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _users() -> set[int]:
    """Who has processes."""
    found = set()
    for pid in _pids() if sys.platform == "linux" else []:
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}").stat().st_uid)
    return found


def _known_users() -> list[range]:
    """Numbers that users can have here: in a container without rights of its own not all."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return [range(1 << 32)]
    spans = [[int(number) for number in line.split()] for line in lines]
    return [range(first, first + count) for first, _, count in spans]


def _tasks_of(user: int) -> int:
    """Processes and threads of a user."""
    total = 0
    for pid in _pids() if sys.platform == "linux" else []:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}").stat().st_uid == user:
                total += len(list(Path(f"/proc/{pid}/task").iterdir()))
    return total


def _belongs(pid: int, user: int | None, mark: str) -> bool:
    if pid == os.getpid():
        return False
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        if "\nState:\tZ" in status:
            return False
        if user is not None and f"\nUid:\t{user}\t" in status:
            return True
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
