"""Views of Linux that belong to some processes only: of the file system, and of the network and processes.

Python often lives below /root, in a folder that its owner alone may enter. A process that gives up root could then read
neither Python nor its packages. So before it does, it gets a view of the file system of its own (a mount namespace), in
which such a folder is empty but for the installation. Other processes see what they saw.

Each piece is tried in a child before it is used, so that one which a system refuses does not take the others along.
Python has no such call before 3.12, so they are made through ctypes. Nothing here may run where there are threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_VIEW = 0x0002_0000  # CLONE_NEWNS
_PRIVATE = 0x4_4000  # MS_REC | MS_PRIVATE: what is mounted here is not seen elsewhere
BIND = 0x5000  # MS_BIND | MS_REC
_TRAVERSE = 0o005
_PARTS = ("paceline", "paceline_course")
NETWORK, PROCESSES, FILES, WRITING, MEMORY = "network", "processes", "files", "writing", "memory"
MISSING = {
    NETWORK: "the network is not cut off",
    PROCESSES: "stray processes may outlive a killed grader",
    FILES: "the number of files is not limited",
    WRITING: "what is written outside the scratch folder, where permissions allow it, stays",
    MEMORY: "shared memory of other programs is within reach",
}
"""The pieces, and what it means to be without one."""

_NEW_NETWORK, _NEW_PROCESSES, _NEW_MEMORY, _NEW_USER = 0x4000_0000, 0x2000_0000, 0x0800_0000, 0x1000_0000
_NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 0x2, 0x4, 0x8
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_MOUNT_SETATTR, _HERE, _RECURSIVE = 442, -100, 0x8000
_READ_ONLY = 0x1
_SHARED_MEMORY, _OWN_SOCKETS = Path("/dev/shm"), Path("/run/user")


def installation() -> list[Path]:
    """Folders that a rank reads: Python, its packages, and every installed part of Paceline."""
    found = [spec for name in _PARTS if (spec := importlib.util.find_spec(name)) is not None]
    parts = [Path(str(folder)) for spec in found for folder in spec.submodule_search_locations or ()]
    return [folder.resolve() for folder in (Path(sys.prefix), Path(sys.base_prefix), *parts)]


def closed(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """Folders on the way to `paths` that others cannot enter, outermost ones only, with the paths below each."""
    found: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(paths):
        way = [path, *path.parents]
        for folder in reversed(way):
            if folder.stat().st_mode & _TRAVERSE != _TRAVERSE:
                found.setdefault(folder, []).append(path)
                break
    return found


@cache
def can_enclose() -> bool:
    """True if this process can create a mount namespace. A child process tries it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    return _works(own_view)


def enclose(also: Iterable[Path] = ()) -> None:
    """Give this process its own view: closed folders on the way to the installation hold the installation only.

    Args:
        also: further folders that it needs.

    Raises:
        OSError: the system refuses.
    """
    ways = closed([*installation(), *(path.resolve() for path in also)])
    if not ways:
        return
    own_view()
    # What will be hidden is held by a handle, through which it can be put back; one of the old view would be refused.
    handles = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for paths in ways.values() for path in paths}
    for folder, paths in ways.items():
        mount("tmpfs", folder, "tmpfs", 0, "mode=755,size=1m")
        for path in paths:
            path.mkdir(parents=True, exist_ok=True)
            mount(f"/proc/self/fd/{handles[path]}", path, None, BIND, None)
    for handle in handles.values():
        os.close(handle)


def own_view() -> None:
    """Let this process see the file system in its own way from now on.

    Raises:
        OSError: the system refuses.
    """
    _unshare(_NEW_VIEW)
    mount("none", Path("/"), None, _PRIVATE, None)


def mount(source: str, target: Path, kind: str | None, flags: int, options: str | None) -> None:
    """Call mount(2).

    Raises:
        OSError: the system refuses.
    """

    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    _call("mount", text(source), text(str(target)), text(kind), ctypes.c_ulong(flags), text(options), about=target)


@dataclass(frozen=True)
class Room:
    """The part of the view that can be written to.

    Attributes:
        scratch: a folder whose content lives in memory and is gone in the end.
        writes: folders that are written to as they are.
        size_bytes: of all files in scratch.
        files: how many there may be.
    """

    scratch: Path
    writes: tuple[Path, ...]
    size_bytes: int
    files: int


def possible() -> frozenset[str]:
    """The pieces that this process can have."""
    if sys.platform != "linux":
        return frozenset()
    return frozenset(piece for piece, attempt in _ATTEMPTS.items() if _works(attempt))


def enter(pieces: Iterable[str]) -> None:
    """Have these pieces from now on; new process numbers begin with the next child.

    Raises:
        OSError: the system refuses.
    """
    wanted = frozenset(pieces)
    if not wanted:
        return
    become_able()
    if MEMORY in wanted:
        _unshare(_NEW_MEMORY)
    if NETWORK in wanted:
        _unshare(_NEW_NETWORK)
        _bring_up_loopback()
    if wanted & {PROCESSES, FILES, WRITING}:
        own_view()
    if PROCESSES in wanted:
        _unshare(_NEW_PROCESSES)


def furnish(pieces: Iterable[str], room: Room) -> None:
    """Arrange the view of the file system, as the first process inside.

    Raises:
        OSError: the system refuses.
    """
    wanted, here = frozenset(pieces), Path.cwd()
    if WRITING in wanted:
        _forbid_writing(room.writes)
    if FILES in wanted:
        limits = f"size={room.size_bytes},nr_inodes={room.files}"
        needed = [here, *room.writes, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
        _cover(_SHARED_MEMORY, f"mode=1777,{limits}", needed)
        # There a user's services start programs outside for whoever asks.
        _cover(_OWN_SOCKETS, "mode=755,size=64k,nr_inodes=16", needed)
        room.scratch.mkdir(parents=True, exist_ok=True)  # in case it lay in one of these
        _memory(room.scratch, f"mode=755,{limits}")
    if PROCESSES in wanted:
        _list_own_processes()
    if MEMORY in wanted:  # segments with a key stay when their makers are gone, and take memory as files in scratch do
        with contextlib.suppress(OSError):
            Path("/proc/sys/kernel/shmall").write_text(str(room.size_bytes // os.sysconf("SC_PAGE_SIZE")))
    os.chdir(here)  # it may lie in what was just put over the old


def gain_nothing() -> None:
    """From now on no program gives more rights than its caller has (sudo, su)."""
    if sys.platform == "linux":
        _LIBC.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def adopt_orphans() -> None:
    """Processes below this one whose parent ends become its children."""
    if sys.platform == "linux":
        _LIBC.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def become_able() -> None:
    """An ordinary user may do all this as the owner of a user namespace, in which everybody keeps their number."""
    if os.geteuid() == 0:
        return
    user, group = os.geteuid(), os.getegid()
    _unshare(_NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _unshare(kind: int) -> None:
    _call("unshare", kind)


def _call(name: str, *arguments: Any, about: Path | None = None) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(about or name))


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _GET_FLAGS, name), 16)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def _list_own_processes() -> None:
    flags = _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS
    try:
        mount("proc", Path("/proc"), "proc", flags, "hidepid=2")  # of others, not even the command line
    except OSError:
        mount("proc", Path("/proc"), "proc", flags, None)


def _memory(place: Path, options: str) -> None:
    mount("tmpfs", place, "tmpfs", _NO_SETUID | _NO_DEVICES, options)


def _cover(place: Path, options: str, needed: Iterable[Path]) -> None:
    """An empty folder in memory over one that nothing needs."""
    if place.is_dir() and not any(each.is_relative_to(place) for each in needed):
        _memory(place, options)


def _forbid_writing(but: Iterable[Path]) -> None:
    """All that is mounted becomes read-only but for some folders, and no program there gives rights."""
    folders = list(but)
    for folder in folders:
        mount(str(folder), folder, None, BIND, None)
    _set_attributes(Path("/"), _RECURSIVE, _READ_ONLY | _NO_SETUID, 0)
    for folder in folders:
        _set_attributes(folder, 0, 0, _READ_ONLY)


def _set_attributes(place: Path, flags: int, set_: int, clear: int) -> None:
    attributes = struct.pack("=QQQQ", set_, clear, 0, 0)
    length = ctypes.c_size_t(len(attributes))
    _call("syscall", _MOUNT_SETATTR, _HERE, os.fsencode(place), flags, attributes, length, about=place)


def _works(attempt: Callable[[], None]) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            attempt()
            code = 0
        os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _try_processes() -> None:
    enter({PROCESSES})
    if not _works(_list_own_processes):
        raise OSError("no list of processes")


def _try_files() -> None:
    enter({FILES})
    _memory(Path(tempfile.gettempdir()), "size=1m,nr_inodes=10")


def _try_writing() -> None:
    enter({WRITING})
    _forbid_writing([Path(tempfile.gettempdir())])


_ATTEMPTS: dict[str, Callable[[], None]] = {
    NETWORK: lambda: enter({NETWORK}),
    PROCESSES: _try_processes,
    FILES: _try_files,
    WRITING: _try_writing,
    MEMORY: lambda: enter({MEMORY}),
}
