"""The runs of part A, each made once however many lines ask for it, and what went wrong with one in general."""

from __future__ import annotations

from collections.abc import Sequence

from paceline_course.assess.box import Box, Ran
from paceline_course.assess.correctness.drawing import Drawn, Trial
from paceline_course.assess.oracle import Truth, truth
from paceline_course.assess.submission_process import Start
from paceline_course.checking import Wrong

_MISMATCH = ("op.preamble.length <= op.nbytes", "Received data size doesn't match expected size")
_LEFT = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
_MEMORY = ("MemoryError", "can't allocate memory", "Cannot allocate memory")
_TOO_MUCH = ("File too large", "No space left", "it left more files in its folder")
_NETWORK = (
    "Network is unreachable",
    "Temporary failure in name resolution",
    "Name or service not known",
    "No address associated with hostname",
    "URLError",
)


class Failed(Wrong):
    """A run did not come to its end; it carries what is known of it."""

    def __init__(self, message: str, ran: Ran, *, expected: str, got: str, where: str = "") -> None:
        super().__init__(message, ran=ran.command, expected=expected, got=got, where=where)
        self.card, self.printed = ran.card(), ran.printed


class Trials:
    """Makes runs and truths when they are first asked for.

    Args:
        box: of the submission.
        drawn: what is drawn for this grading.
    """

    def __init__(self, box: Box, drawn: Drawn) -> None:
        self.box, self.drawn = box, drawn
        self._ran: dict[int, Ran] = {}
        self._truths: dict[int, Truth] = {}

    def run(self, trial: Trial, *extra: str, alone: bool = False) -> Ran:
        """The run of a trial, which came to its end.

        Raises:
            Failed: it did not.
        """
        key = id(trial)
        if key not in self._ran:
            start = Start((*trial.setting.arguments(), *extra), alone=alone)
            self._ran[key] = self.box.run(trial.world, start)
        return ended(self._ran[key])

    def truth(self, trial: Trial) -> Truth:
        """What one process gives."""
        key = id(trial)
        if key not in self._truths:
            self._truths[key] = truth(trial.setting)
        return self._truths[key]


def ended(ran: Ran) -> Ran:
    """The run, if it came to its end.

    Raises:
        Failed: otherwise.
    """
    if ran.late is not None:
        message = "hang"
        raise Failed(message, ran, expected=f"an end within {ran.late.timeout_s:g} s", got="none")
    if ran.failure is not None:
        message, where = _kind(ran)
        on_rank = f" on rank {ran.failure.rank}" if ran.world > 1 else ""
        said = ran.failure.message.strip().splitlines() or ["it failed"]
        raise Failed(message, ran, expected="exit code 0", got=f"{said[-1][:300]}{on_rank}", where=where)
    return ran


def _kind(ran: Ran) -> tuple[str, str]:
    """Message and place of a failure."""
    failure = ran.failure
    assert failure is not None
    text = f"{failure.message}\n{failure.traceback}\n{ran.printed}"
    where = failure.place(ran.folder)
    name = (failure.message.strip().splitlines() or [""])[-1].partition(":")[0].strip()
    table: Sequence[tuple[bool, str]] = (
        (name in {"SyntaxError", "IndentationError", "TabError"}, "syntax"),
        (name == "SystemExit", "exit"),
        (any(word in text for word in _NETWORK), "network"),
        (any(word in text for word in _TOO_MUCH), "too-much"),
        (any(word in text for word in _MEMORY), "memory"),
        (any(word in text for word in _MISMATCH), "mismatch"),
        (any(word in text for word in _LEFT), "left"),
        (not failure.traceback, "died"),
    )
    return next((message for holds, message in table if holds), "raised"), where
