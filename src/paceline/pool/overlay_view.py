"""A view of the file system in which everything can be written and nothing stays.

A process of its own holds the view, a mount namespace in which each folder is an overlay over the real one; others join
it. What they write lies in memory and is gone when the holder has ended. Ordinary users can have such a view where the
system allows user namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from paceline.pool import mount_view
from paceline.pool.processes import Session

_HOLD = "paceline.pool.overlay_view:hold"
_LEFT_ALONE = {"proc", "sys", "dev", "run", "boot", "lost+found"}
_NAMESPACES = (("user", 0x1000_0000), ("mnt", 0x0002_0000))
_PATIENCE_S = 10.0


class _Holding(msgspec.Struct, frozen=True):
    """A request to the holder."""

    scratch: str
    """A folder that stays as it is: what is written there is seen outside."""
    ready: str
    """Path of a file in it that is made when the view is complete; it holds the reason where there is none."""


@contextlib.contextmanager
def overlay_view(session: Session, scratch: Path) -> Iterator[int]:
    """A view, as long as the block lasts.

    Args:
        session: of the fork server.
        scratch: an existing folder, the only one in which what is written stays.

    Yields:
        the process id of its holder, for `join`.

    Raises:
        OSError: the system forbids it.
    """
    scratch = scratch.resolve()  # the holder changes its directory
    ready = scratch / f"view-{time.monotonic_ns()}"
    given = msgspec.json.encode(_Holding(str(scratch), str(ready)))
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        holder = session.start(_HOLD, given, output=(nowhere.fileno(), nowhere.fileno()))
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not ready.exists():
            if holder in session.codes or time.monotonic() > deadline:
                raise OSError("the process that holds the view has ended")
            session.wait(0.01)
        if why := ready.read_text():
            raise OSError(why)
        yield holder
    finally:
        session.send_signal(holder, signal.SIGKILL)


def join(holder: int) -> None:
    """See what the holder sees; the current directory is to be entered anew.

    Raises:
        OSError: the system forbids it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for name, kind in _NAMESPACES:
        theirs = os.open(f"/proc/{holder}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(theirs).st_ino == Path(f"/proc/self/ns/{name}").stat().st_ino:
                continue
            if libc.setns(theirs, kind) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(theirs)


def hold(given: bytes) -> int:
    """The holder: makes the view and waits for its end."""
    holding = msgspec.json.decode(given, type=_Holding)
    why = ""
    try:
        _cover(Path(holding.scratch))
    except OSError as error:
        why = str(error)
    partial = Path(f"{holding.ready}.partial")
    partial.write_text(why)
    partial.rename(holding.ready)
    while not why:
        signal.pause()
    return 1


def _cover(scratch: Path) -> None:
    as_root = os.geteuid() == 0
    folders = _folders(as_root=as_root)
    if not as_root:
        mount_view.become_able()
    mount_view.own_view()
    kept = os.open(scratch, os.O_PATH | os.O_DIRECTORY)
    memory = scratch / "memory"
    memory.mkdir(exist_ok=True)
    mount_view.mount("tmpfs", memory, "tmpfs", 0, "mode=755")
    os.chdir(memory)  # its path leads elsewhere as soon as a folder above it is covered
    for number, folder in enumerate(folders):
        upper, work = Path(f"{number}-upper"), Path(f"{number}-work")
        upper.mkdir()
        work.mkdir()
        seen = folder.stat()
        os.chmod(upper, stat.S_IMODE(seen.st_mode))  # noqa: PTH101
        if as_root:
            os.chown(upper, seen.st_uid, seen.st_gid)
        options = f"lowerdir={_escaped(folder)},upperdir={upper},workdir={work}" + ("" if as_root else ",userxattr")
        mount_view.mount("overlay", folder, "overlay", 0, options)
    mount_view.mount(f"/proc/self/fd/{kept}", scratch, None, mount_view.BIND, None)
    os.close(kept)
    os.chdir("/")


def _folders(*, as_root: bool) -> list[Path]:
    """Folders to be covered: those below the root, and what is mounted below them, outer ones first.

    Raises:
        OSError: an ordinary user can write into a folder that cannot be covered.
    """
    tops = [each for each in _inside(Path("/")) if each.name not in _LEFT_ALONE]
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounted = {Path(line.split()[4].replace("\\040", " ")) for line in lines}
    below = sorted(each for each in mounted if any(top in each.parents for top in tops))
    if as_root:
        return [*tops, *(each for each in below if each.is_dir())]
    return [each for top in tops for each in _parts(top, below)]


def _parts(folder: Path, mounted: Iterable[Path]) -> list[Path]:
    """A folder, or those in it: in a user namespace, no overlay is possible over a folder in which others mounted."""
    own = [each for each in mounted if folder in each.parents]
    if not own:
        return [folder]
    if os.access(folder, os.W_OK):
        raise OSError(errno.EINVAL, "something is mounted in it, and this user can write beside that", str(folder))
    return [part for each in _inside(folder) for part in _parts(each, own)] if os.access(folder, os.R_OK) else []


def _inside(folder: Path) -> list[Path]:
    """Folders in a folder that are no links."""
    return sorted(Path(each) for each in os.scandir(folder) if each.is_dir(follow_symlinks=False))


def _escaped(folder: Path) -> str:
    """Escape a path for a mount option."""
    return re.sub(r"([\\:,])", r"\\\1", str(folder))
