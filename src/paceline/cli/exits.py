"""From how a command ended to one message and its documented exit code (docs/reference/exit-codes.md)."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator

from paceline.cli import signals
from paceline.records.errors import ELSEWHERE, REFUSAL_FILE, Exit, PacelineError

TYPE_CHECKING = False  # typing itself would cost a tenth of the time that help may take
if TYPE_CHECKING:
    from typing import NoReturn, TypeVar

    T = TypeVar("T")

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO}
"""Only writing meets these."""
_NOT_ALLOWED = {errno.EACCES, errno.EPERM}


_PLACE = {"train": "--run-dir", "run": "--run-dir", "landscape": "--run-dir", "plan": "--run-dir", "report": "--output"}
"""The flag of a verb that says where to write."""


@contextlib.contextmanager
def numbers_first() -> Iterator[Callable[[Callable[[], T]], T | None]]:
    """Around a verb that writes pages and shows numbers: a page that cannot be written is reported after the numbers.

    Yields:
        what calls a function that writes, and returns its result, or None where it failed.
    """
    failed: list[PacelineError] = []

    def attempt(write: Callable[[], T]) -> T | None:
        try:
            return write()
        except PacelineError as error:
            if error.exit_code != Exit.CANNOT_WRITE:
                raise
            failed.append(error)
            return None

    yield attempt
    if failed:
        raise failed[0]


def name_flag(error: PacelineError, verb: str) -> PacelineError:
    """The error of a write with the flag of the verb that says where to write."""
    flag = _PLACE.get(verb)
    if flag is not None and flag not in error.hint:
        error.hint = error.hint.replace(ELSEWHERE, f"{ELSEWHERE} ({flag})")
    return error


def exit_code_of(work: Callable[[], int], verb: str = "") -> int:
    """Call `work`; what it raises becomes a message on standard error, and an exit code.

    Standard output is part of what was asked for: that it cannot be written is a failure like any other. That its
    reader has gone is not reported, but there is no success either.
    """
    refusal = os.environ.pop(REFUSAL_FILE, "")  # commands that this one starts shall not write there
    try:
        code = work()
        sys.stdout.flush()
        return code
    except PacelineError as error:
        return _refuse(name_flag(error, verb), refusal)
    except KeyboardInterrupt as stop:
        return _say(f"\n{signals.words(stop)}", signals.exit_code(stop))
    except BrokenPipeError:
        return int(Exit.FAILED)
    except OSError as error:
        return _refuse(name_flag(_refused(error), verb), refusal)


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


def _refuse(error: PacelineError, path: str) -> int:
    """Print the error, and leave it as data at `path`, if there is one, for the command that started this one."""
    if path:
        from paceline.records.validation import Refusal

        with contextlib.suppress(OSError):
            Refusal.of(error).write(path)
    return _say(f"{error}", error.exit_code)


def _say(message: str, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):  # standard error may be full or closed as well
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
    return int(code)


def _refused(error: OSError) -> PacelineError:
    """The message for an error of the operating system that no verb has put into words."""
    why, path = error.strerror or str(error), error.filename
    there = isinstance(path, (str, os.PathLike)) and os.path.exists(path)  # noqa: PTH110  # pathlib costs start-up
    if error.errno in _NO_ROOM or (error.errno in _NOT_ALLOWED and path is not None and not there):
        what = f"cannot write {path or 'the output'}"
        hint = f"free some space, or {ELSEWHERE}" if path else "free some space"
        return PacelineError(what, why=why, hint=hint, exit_code=Exit.CANNOT_WRITE)
    return PacelineError(f"cannot use {path}" if path else "the operating system refused", why=why)
