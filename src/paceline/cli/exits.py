"""From how a command ended to one message and its documented exit code (docs/reference/exit-codes.md)."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from paceline.cli import signals
from paceline.records.errors import Exit, PacelineError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO}
"""Only writing meets these."""
_NOT_ALLOWED = {errno.EACCES, errno.EPERM}


def exit_code_of(work: Callable[[], int]) -> int:
    """Call `work`; what it raises becomes a message on standard error, and an exit code.

    Standard output is part of what was asked for: that it cannot be written is a failure like any other. That its
    reader has gone is not reported, but there is no success either.
    """
    try:
        code = work()
        sys.stdout.flush()
        return code
    except PacelineError as error:
        return _say(f"{error}", error.exit_code)
    except KeyboardInterrupt as stop:
        return _say(f"\n{signals.words(stop)}", signals.exit_code(stop))
    except BrokenPipeError:
        return int(Exit.FAILED)
    except OSError as error:
        refused = _refused(error)
        return _say(f"{refused}", refused.exit_code)


def leave(code: int) -> NoReturn:
    """End the process without taking the interpreter apart.

    With torch that takes 0.7 s of processor time, half a minute on a machine with much else to do. And output that was
    refused is not tried again.
    """
    signals.at_once()
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _say(message: str, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):  # standard error may be full or closed as well
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
    return int(code)


def _refused(error: OSError) -> PacelineError:
    """The message for an error of the operating system that no verb has put into words."""
    why, path = error.strerror or str(error), error.filename
    there = isinstance(path, (str, os.PathLike)) and Path(path).exists()
    if error.errno in _NO_ROOM or (error.errno in _NOT_ALLOWED and path is not None and not there):
        what = f"cannot write {path or 'the output'}"
        hint = "free some space, or write elsewhere"
        return PacelineError(what, why=why, hint=hint, exit_code=Exit.CANNOT_WRITE)
    return PacelineError(f"cannot use {path}" if path else "the operating system refused", why=why)
