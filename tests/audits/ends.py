"""Ends of ranks, as a launcher records them."""

from __future__ import annotations

from paceline.audits.cause_card import as_record
from paceline.audits.root_cause import RootCause
from paceline.records.launched import Attempt, RankExit
from paceline.records.wrap import text_card


def ended(rank: int, code: int, at: float | None = None, *, stopped: bool | None = False) -> RankExit:
    """A rank that ended some seconds after the start; `at` is None where it was not seen, and by whom is not known."""
    return RankExit(rank=rank, local_rank=rank, pid=70 + rank, exit_code=code, after_s=at, stopped=stopped)


def attempt(*ranks: RankExit, world: int | None = None, started: float = 0.0) -> Attempt:
    """A failed attempt of these ranks."""
    return Attempt(
        attempt=1,
        started_unix_s=started,
        duration_s=0.0,
        world=len(ranks) if world is None else world,
        outcome="failed",
        ranks=list(ranks),
        logs=None,
    )


def card(cause: RootCause, *, width: int | None = None) -> str:
    """The cause as the launcher shows it."""
    record = as_record(cause)
    return text_card(record.title, record.rows, width=width)
