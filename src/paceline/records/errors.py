"""The one way in which Paceline says no: what happened, why, what to do next, and a documented exit code."""

from __future__ import annotations

import enum
from collections.abc import Iterable

ELSEWHERE = "write elsewhere"
"""The end of a hint to which the command line adds its verb's flag."""
REFUSAL_FILE = "PACELINE_REFUSAL_FILE"
"""Environment variable: where a command leaves the error that it ends with, as JSON of `records.validation.Refusal`."""


class Exit(enum.IntEnum):
    """Exit codes of every verb; docs/reference/exit-codes.md lists them in users' words."""

    OK = 0
    FAILED = 1
    """A worker or Paceline itself failed while running."""
    USAGE = 2
    """The request cannot be carried out: bad option, missing or damaged input."""
    DIVERGED = 3
    """The training's mathematics failed: the loss is not a finite number."""
    CANNOT_WRITE = 4
    """A file could not be written: disk full, no permission."""
    INCONCLUSIVE = 5
    """Evidence is missing: neither pass nor fail."""
    INTERRUPTED = 130
    """Ctrl-C; what is done is on disk, for a training as a checkpoint of a step that all ranks agreed on."""
    TERMINATED = 143
    """SIGTERM; likewise."""


class PacelineError(Exception):
    """A failure that the user can act on.

    Args:
        what: one sentence, what is wrong, naming the value or the file.
        why: the cause, if it is known and not obvious from `what`.
        hint: the next step, best as a command or an option; lists the legal values where there are some.
        exit_code: what the process ends with.
    """

    def __init__(self, what: str, *, why: str = "", hint: str = "", exit_code: int = Exit.USAGE) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint
        self.exit_code = int(exit_code)

    def __str__(self) -> str:
        return render(self.what, self.why, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel from ranks to their launcher; keyword-only arguments need help to be pickled.
        return (_rebuild, (self.what, self.why, self.hint, self.exit_code))


def _rebuild(what: str, why: str, hint: str, exit_code: int) -> PacelineError:
    return PacelineError(what, why=why, hint=hint, exit_code=exit_code)


def render(what: str, why: str = "", hint: str = "") -> str:
    """The message as users see it: at most three parts, each on lines of its own."""
    lines = [f"error: {what}"]
    if why:
        lines.append(f"  why:  {why}")
    if hint:
        lines.append(f"  next: {hint}")
    return "\n".join(lines)


def choices(legal: Iterable[object]) -> str:
    """The legal values as one readable list, for hints."""
    return ", ".join(str(value) for value in legal)
