"""One process fetches into a folder, the others wait for it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline.tasks.data.fetched_files import SCRATCH_PREFIX, write_error

LOCK_NAME = ".paceline-fetch.lock"
WAIT_LIMIT_S = 1800.0
"""A fetch limits each of its own steps, so one that takes longer than this hangs."""
POLL_S = 0.1
_VANISHED_LIMIT = 50
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def fetch_lock(folder: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Be the only process that fetches into `folder`, which is made when it is missing.

    The kernel drops the lock when its holder dies, and what a killed fetch left is removed here. Directories that
    were made and are still empty at the end, and the lock file, are removed too: a fetch that fails leaves nothing.
    On a file system without locks nobody waits; each fetch still writes aside and renames.

    Args:
        on_wait: called about every `POLL_S` seconds with the number of the process that is waited for.

    Raises:
        PacelineError: the folder cannot be written, or the other process takes longer than `WAIT_LIMIT_S`.
    """
    made = _missing_dirs(folder)
    handle, alone = _acquire(folder, on_wait)
    try:
        if alone:
            for stale in folder.glob(f"{SCRATCH_PREFIX}*"):
                shutil.rmtree(stale, ignore_errors=True)
        yield
    finally:
        # The name goes while the lock is held: whoever waits for this file then sees that it has lost its name.
        with contextlib.suppress(OSError):
            (folder / LOCK_NAME).unlink()
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        os.close(handle)


def _missing_dirs(folder: Path) -> list[Path]:
    """`folder` and those above it that do not exist, deepest first."""
    missing = []
    for path in (folder, *folder.parents):
        if os.path.lexists(path):
            break
        missing.append(path)
    return missing


def _acquire(folder: Path, on_wait: Callable[[str], None]) -> tuple[int, bool]:
    """An open lock file, and whether it is locked (False where the file system has no locks)."""
    lock = folder / LOCK_NAME
    deadline = time.monotonic() + WAIT_LIMIT_S
    holder = ""
    vanished = 0
    while time.monotonic() < deadline:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            vanished += 1
            # The process that was waited for may remove its empty directory just now; then it is made once more.
            if isinstance(error, FileNotFoundError) and vanished < _VANISHED_LIMIT:
                continue
            raise write_error(folder, error) from error
        locked = _try_lock(handle)
        if locked is None:
            return handle, False
        if locked and _still_named(handle, lock):
            _sign(handle)
            return handle, True
        if not locked:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or holder
        os.close(handle)
        if not locked:
            on_wait(holder or "unknown")
            time.sleep(POLL_S)
    raise PacelineError(
        f"process {holder or 'unknown'} has been fetching into {folder} for more than {WAIT_LIMIT_S / 60:.0f} minutes",
        hint="end it, or choose another directory with --data-dir",
    )


def _try_lock(handle: int) -> bool | None:
    """True: locked; False: another process has it; None: this file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS_HERE:
            return None
        raise
    return True


def _still_named(handle: int, lock: Path) -> bool:
    """Whether the open file still is the one called `lock`, and not one that its last holder removed."""
    try:
        named = lock.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), named)


def _sign(handle: int) -> None:
    """Say who holds the lock; on a full disk nobody learns it, and the lock holds all the same."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
