"""The message for a failed job of our own: the error that a rank reported, or the root-cause card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paceline.audits.cause_card import cause_of
from paceline.records.errors import Exit, PacelineError
from paceline.records.launched import Attempt
from paceline.records.wrap import text_card


class RankFailed(PacelineError):  # noqa: N818  # it reads as what happened
    """A rank failed without reporting an error of ours; shown as a card."""

    def __init__(self, card: str, hint: str) -> None:
        super().__init__("a rank failed", why=card, hint=hint, exit_code=Exit.FAILED)

    def __str__(self) -> str:
        return f"{self.why}\n  next: {self.hint}" if self.hint else self.why


def failure_of(attempt: Attempt, logs: Path | None, resume: str) -> PacelineError:
    """The message for a job that ended with failures.

    Args:
        attempt: the ranks that failed.
        logs: the directory that holds `<local_rank>/`; None when there is none.
        resume: the command that resumes from the last checkpoint; empty if there is none.
    """
    if (reported := _reported(logs)) is not None:
        return reported
    cause = cause_of(attempt, logs)
    return RankFailed(text_card(cause.title, cause.rows) if cause is not None else "a rank failed", resume)


def _reported(logs: Path | None) -> PacelineError | None:
    """The earliest error that a rank reported itself."""
    found: list[tuple[float, dict[str, Any]]] = []
    for path in logs.glob("*/error.json") if logs is not None else ():
        try:
            detail = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # torn: that rank's log is in the card
        if isinstance(detail, dict) and "paceline" in detail:
            found.append((float(detail.get("time_unix_s", 0.0)), detail["paceline"]))
    if not found:
        return None
    _, parts = min(found, key=lambda one: one[0])
    return PacelineError(parts["what"], why=parts["why"], hint=parts["hint"], exit_code=parts["exit_code"])
