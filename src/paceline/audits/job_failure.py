"""From the failures of a job of ours to one message: what a rank said itself, or the root-cause card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paceline.audits.cause_card import cause_of
from paceline.records.errors import Exit, PacelineError
from paceline.records.launched import Attempt
from paceline.records.wrap import text_card


class RankFailed(PacelineError):  # noqa: N818  # it reads as what happened
    """A rank failed in a way that it could not put into words; shown as a card."""

    def __init__(self, card: str, hint: str) -> None:
        super().__init__("a rank failed", why=card, hint=hint, exit_code=Exit.FAILED)

    def __str__(self) -> str:
        return f"{self.why}\n  next: {self.hint}" if self.hint else self.why


def failure_of(attempt: Attempt, logs: Path | None, resume: str) -> PacelineError:
    """The message for a job that ended with failures.

    Args:
        attempt: the ranks that failed.
        logs: the directory that holds `<local_rank>/`; None when there is none.
        resume: the command that goes on from the last checkpoint; empty when there is none.
    """
    said = _in_their_words(logs)
    if said is not None:
        return said
    cause = cause_of(attempt, logs)
    return RankFailed(text_card(cause.title, cause.rows) if cause is not None else "a rank failed", resume)


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
