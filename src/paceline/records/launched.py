"""What a launcher knows of a job: its attempts, how each rank ended, and why.

A launcher writes these events to a file of its own, `events/launcher-<node>.jsonl`.
"""

from __future__ import annotations

import msgspec

from paceline.records.event import AttemptOutcome, CauseKind, Event
from paceline.records.place import Place
from paceline.records.standing import RankStanding


class RankExit(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank's process ended."""

    rank: int
    local_rank: int
    pid: int
    exit_code: int | None
    """Below 0 the negative number of the signal that killed it; None when it was not seen to end."""
    after_s: float | None
    """Since its attempt started; None when not observed."""
    stopped: bool | None
    """It ended after the launcher had told it to stop; None when that is not known."""


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt failed."""

    kind: CauseKind
    title: str
    """In one line."""
    rank: int | None
    """The rank that ended the job; None when not known."""
    rows: list[tuple[str, str]]
    """What belongs to it, as label and text; an empty label continues the row before."""
    place: Place | None = None
    """The line of the user's code that raised; None when not known."""
    sure: bool = True
    """False where the evidence allows another cause."""
    finished: bool = False
    """The rank had done its work: gloo sometimes aborts a process at its exit."""


class HangSeen(Event, frozen=True, kw_only=True, tag="hang", omit_defaults=True):
    """No rank of this machine advanced for longer than its job usually takes."""

    kind: str
    """"missing": `culprits` did not come to a call in which others wait. "mismatch": they wait in different calls.
    "network": all wait in the same call. "stopped": the culprits' processes are stopped or blocked. "busy": no rank is
    known to wait for another."""
    title: str
    why: str
    advice: str
    culprits: list[int]
    """Ranks to look at."""
    ranks: list[RankStanding]
    """Ranks of this machine."""
    out_of_step: list[int] = []  # noqa: RUF012  # msgspec makes a new one for each
    """Of a "mismatch", the culprits outside the call in which more than half of the ranks wait."""
    step: int = 0
    """Optimizer steps done."""
    still_s: float = 0.0
    """Since a rank last advanced."""
    patience_s: float = 0.0
    """For which a pause was taken for a slow step."""


class HangOver(Event, frozen=True, kw_only=True, tag="hang_over"):
    """The job went on after the last `hang`."""

    still_s: float
    """For so long no rank had advanced."""


class Attempt(Event, frozen=True, kw_only=True, tag="attempt"):
    """The workers of this machine ran from one start to one end."""

    attempt: int
    """1 for the first."""
    started_unix_s: float
    duration_s: float
    world: int
    outcome: AttemptOutcome
    ranks: list[RankExit]
    """Ranks of this machine."""
    logs: str | None
    """The directory that holds `<local_rank>/`, relative to the run directory or absolute; None when none was kept."""
    cause: Cause | None = None
    """Of a failure."""
