"""From the failures of a job of ours to one message: what a rank said itself, or the root-cause card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from paceline.audits.cause_card import card
from paceline.audits.root_cause import RankEnd, diagnose
from paceline.records.errors import Exit, PacelineError


class Failure(Protocol):
    """A rank's failure, as torch elastic tells it."""

    local_rank: int
    pid: int
    exitcode: int
    timestamp: int


class EndedJob(Protocol):
    """A job of ours that has ended."""

    @property
    def failures(self) -> Mapping[int, Failure]:
        """Of ranks, by global rank."""
        ...

    @property
    def logs(self) -> Path | None:
        """The directory that holds `<local_rank>/`."""
        ...


class RankFailed(PacelineError):  # noqa: N818  # it reads as what happened
    """A rank failed in a way that it could not put into words; shown as a card."""

    def __init__(self, card: str, hint: str) -> None:
        super().__init__("a rank failed", why=card, hint=hint, exit_code=Exit.FAILED)

    def __str__(self) -> str:
        return f"{self.why}\n  next: {self.hint}" if self.hint else self.why


def failure_of(ended: EndedJob, resume: str) -> PacelineError:
    """The message for a job that ended with failures.

    Args:
        ended: what the launcher knows.
        resume: the command that goes on from the last checkpoint; empty when there is none.
    """
    said = _in_their_words(ended.logs)
    if said is not None:
        return said
    failures = [
        RankEnd(
            rank=rank,
            local_rank=failure.local_rank,
            pid=failure.pid,
            exit_code=failure.exitcode,
            at_unix_s=float(failure.timestamp),
        )
        for rank, failure in sorted(ended.failures.items())
    ]
    return RankFailed(card(diagnose(failures, ended.logs)), resume)


def _in_their_words(logs: Path | None) -> PacelineError | None:
    """The earliest failure that a rank explained itself."""
    told: list[tuple[float, dict[str, Any]]] = []
    for path in logs.glob("*/error.json") if logs is not None else ():
        try:
            detail = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # torn: that rank's log is in the card
        if isinstance(detail, dict) and "paceline" in detail:
            told.append((float(detail.get("time_unix_s", 0.0)), detail["paceline"]))
    if not told:
        return None
    _, parts = min(told, key=lambda one: one[0])
    return PacelineError(parts["what"], why=parts["why"], hint=parts["hint"], exit_code=parts["exit_code"])
