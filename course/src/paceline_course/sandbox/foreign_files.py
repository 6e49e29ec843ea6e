"""Files that foreign code may have written: read and removed without falling for what it put in their place."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path

_DEEPEST = 50


def read_foreign(path: Path, most_bytes: int = 1 << 20) -> bytes | None:
    """The beginning of a file that foreign code may have written; None where there is no regular file.

    Such code may put a link to a file of ours there, or a pipe on which the reader would wait for ever. A link in the
    place of a folder above it is not noticed; the folder of a call is the caller's own.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        seen = os.fstat(handle)
        # A second name of a file of ours is as good as a link.
        return file.read(most_bytes) if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 else None


def remove_foreign(*paths: Path) -> None:
    """Remove files and folders, also a folder in a folder in a folder, which Python's own way gives up on."""
    for start in range(0, len(paths), 500):
        subprocess.run(["/bin/rm", "-rf", "--", *paths[start : start + 500]], check=False, stderr=subprocess.DEVNULL)


def is_modest(folder: Path, most_files: int, most_bytes: int) -> bool:
    """Whether a folder holds no more than that, and nothing so deep that it cannot be walked through."""
    files = size = 0
    left = [(folder, 0)]
    while left:
        place, depth = left.pop()
        try:
            for entry in os.scandir(place):
                files += 1
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                if files > most_files or size > most_bytes or depth > _DEEPEST:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    left.append((Path(entry.path), depth + 1))
        except OSError:  # a name too long, or of a user who locked it before us
            return False
    return True


def remove_of_user(folder: Path, user: int) -> None:
    """What a user has put into a folder that is open to everybody."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == user:
                    found.append(Path(entry.path))
    remove_foreign(*found)
