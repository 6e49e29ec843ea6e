"""The card of a run of `paceline run`: how it ended, its attempts with their causes, and where everything is."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.cli.card_layout import Block, Card, Row, Rows, Words
from paceline.records.launched import Attempt
from paceline.report import launch_view, words
from paceline.report.facts import outcome_of, tiles
from paceline.report.launch_view import Launch
from paceline.report.summary import Summary

_EARLIER = ("raised", "at", "ended", "log")
"""What the card shows of the cause of an attempt that was followed by another."""
_MAX_RANKS = 8


def launch_card(summary: Summary, launch: Launch) -> Card:
    """The card.

    Args:
        summary: of the run.
        launch: `summary.launch`.
    """
    good = summary.status == "finished"
    opening: list[Block] = [
        Words(summary.name, "bold"),
        Words(summary.first_line, "dim"),
        Words(summary.ended, "" if good else "bold yellow"),
    ]
    numbers: list[Block] = [Rows([Row(tile.label, tile.value, tile.details) for tile in tiles(summary)])]
    attempts = [_attempt(each, last=each is launch.attempts[-1]) for each in launch.attempts]
    places: list[Block] = [
        _rows(
            [("not observed", ", ".join(launch.not_observed)), ("run", summary.where.run), ("logs", summary.where.logs)]
        )
    ]
    places += [Words(message, head=("note: ", "yellow")) for message in summary.warnings]
    return Card(opening, numbers, *attempts, places)


def _attempt(attempt: Attempt, *, last: bool) -> list[Block]:
    rows = [
        (f"rank {rank.rank}", f"{launch_view.rank_ended(rank)} after {words.duration(rank.after_s)}")
        for rank in attempt.ranks[:_MAX_RANKS]
    ]
    if len(attempt.ranks) > _MAX_RANKS:
        rows.append(("", f"and {len(attempt.ranks) - _MAX_RANKS} more"))
    title = f"attempt {attempt.attempt} {outcome_of(attempt)} after {words.duration(attempt.duration_s)}"
    if attempt.cause is not None:
        title = f"{title}: {attempt.cause.title}"
        rows += [row for row in attempt.cause.rows if last or row[0] in _EARLIER]
    return [Words(title, "bold"), _rows(rows)]


def _rows(rows: Sequence[tuple[str, str]]) -> Rows:
    return Rows([Row(label, launch_view.as_shown(text)) for label, text in rows])
