"""An installation that only root can enter, opened for a process of another user, and nothing else of that folder.

Python often lives below /root, in a folder that its owner alone may enter. A process that gives up root could then read
neither Python nor its packages. So before it does, it gets a view of the file system of its own (a mount namespace), in
which such a folder is empty but for the installation. Other processes see what they saw.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_NEW_VIEW = 0x0002_0000  # CLONE_NEWNS
_PRIVATE = 0x4_4000  # MS_REC | MS_PRIVATE: what is mounted here is not seen elsewhere
BIND = 0x5000  # MS_BIND | MS_REC
_TRAVERSE = 0o005


def installation() -> list[Path]:
    """Folders that a rank reads: Python, its packages, Paceline."""
    return [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path(__file__).resolve().parents[1]]


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
    """Whether this process may have a view of its own; tried in a child."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            own_view()
            code = 0
        os._exit(code)
    return os.waitpid(child, 0)[1] == 0


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
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_VIEW) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", Path("/"), None, _PRIVATE, None)


def mount(source: str, target: Path, kind: str | None, flags: int, options: str | None) -> None:
    """As the system call.

    Raises:
        OSError: the system refuses.
    """

    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    library = ctypes.CDLL(None, use_errno=True)
    code = library.mount(text(source), text(str(target)), text(kind), ctypes.c_ulong(flags), text(options))
    if code != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))
