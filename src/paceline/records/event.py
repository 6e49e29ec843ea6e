"""What all events have in common: their base, and words that a later version may add to.

Type checkers hold writers to the words that are known. Readers take any word, so that one of a later version does not
read as damage: whoever looks a word up needs an answer for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    Verb = Literal["train", "run", "landscape", "plan"]
    Device = Literal["cpu", "cuda"]
    EndReason = Literal["finished", "target", "interrupted", "diverged", "failed"]
    CheckpointReason = Literal["periodic", "requested", "interrupted", "final"]
    """`requested`: by a signal (--save-signal) to a run that went on."""
    AttemptOutcome = Literal["succeeded", "failed", "interrupted", "membership"]
    """`membership`: machines joined or left, and all ranks were started again."""
    CauseKind = Literal["failed", "left", "hang", "unknown"]
    """The rank failed by itself; it left with code 0 while others waited; the ranks were ended since no one advanced;
    or the first cause is not known."""
    Level = Literal["info", "warning"]
    Severity = Literal["error", "warning", "info"]
else:
    Verb = Device = EndReason = CheckpointReason = AttemptOutcome = CauseKind = Level = Severity = str


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events; one JSON object a line, tagged with `type`."""

    attempt: int | msgspec.UnsetType = msgspec.UNSET
    """Which start of a restarted job wrote this, 1 for the first; left out where a job is not restarted."""


def attempt_of(event: Event) -> int:
    """Which start of the job wrote an event."""
    return 1 if event.attempt is msgspec.UNSET else event.attempt
