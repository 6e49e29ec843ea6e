"""The result card: what a run came to, at the end of `paceline train` and in `paceline report`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from paceline.cli.card_layout import NARROW, Block, Card, Grid, Row, Rows, Words
from paceline.records.schema import RunInfo
from paceline.report import words
from paceline.report.comparison import Comparison
from paceline.report.facts import tiles
from paceline.report.summary import Phase, Summary, newest_checkpoint

_BAR = "█"
_PARTS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class NextStep:
    """A command to type, and what for."""

    command: str
    purpose: str


def result_card(summary: Summary, info: RunInfo, next_steps: Sequence[NextStep] | None = None) -> Card:
    """The card of one run: numbers, where the time went, where everything is, what to type next.

    Args:
        summary: of the run.
        info: its run.json.
        next_steps: None proposes what fits the way in which the run ended.
    """
    good = summary.status in ("finished", "target")
    steps = propose(summary, info) if next_steps is None else next_steps
    opening: list[Block] = [
        Words(summary.name, "bold"),
        Words(summary.first_line, "dim"),
        Words(summary.ended, "" if good else "bold yellow"),
    ]
    phases: list[Block] = [Words("where the time went (rank 0)", "dim"), _Phases(summary.phases)]
    places: list[Block] = [Rows([Row(label, value) for label, value in _places(summary)])]
    places += [Words(message, head=("note: ", "yellow")) for message in summary.warnings]
    todo: list[Block] = [Words("next", "dim")]
    for step in steps:
        todo += [Words(step.command, "bold", indent="  "), Words(step.purpose, "dim", indent="    ")]
    return Card(opening, [Rows(_numbers(summary))], phases if summary.phases else [], places, todo if steps else [])


def propose(summary: Summary, info: RunInfo) -> list[NextStep]:
    """Commands that fit the way in which the run ended."""
    place = shlex.quote(summary.where.run)
    steps = []
    if summary.status not in ("finished", "target") and info.verb == "train" and summary.where.checkpoint:
        task = info.config.get("task")
        name = task if isinstance(task, str) else info.name
        steps.append(NextStep(f"paceline train {shlex.quote(name)} --resume {place}", "go on from its last checkpoint"))
    steps.append(NextStep(f"paceline report {place}", "curves and numbers as a page"))
    return steps


def comparison_card(comparison: Comparison) -> Card:
    """What differs between runs, and their numbers with ratios to the first."""
    settings = [[setting.name, *setting.values] for setting in comparison.settings]
    if not settings:
        settings = [["no recorded setting", *("" for _ in comparison.runs)]]
    numbers = []
    for row in comparison.numbers:
        cells = []
        for index, (shown, ratio) in enumerate(zip(row.shown, row.ratios, strict=True)):
            cells.append(shown if ratio is None or index == 0 else f"{shown} × {ratio:.3f}")
        numbers.append([row.name, *cells])
    return Card(
        [Grid(["what differs", *comparison.runs], settings)],
        [Words(remark) for remark in comparison.remarks],
        [Grid(["numbers", *comparison.runs], numbers)] if numbers else [],
        [Words(comparison.caution, "dim")] if comparison.caution else [],
    )


def _numbers(summary: Summary) -> list[Row]:
    return [Row(tile.label, tile.value, tile.details) for tile in tiles(summary)]


class _Phases:
    """Shares of the time, with a bar each where there is room."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = phases

    def lines(self, width: int) -> list[Text]:
        """One a phase; below `NARROW` columns without a bar."""
        longest = max(phase.share for phase in self._phases) or 1.0
        rows = [(phase.name, words.share(phase.share), words.duration(phase.seconds)) for phase in self._phases]
        if width < NARROW:
            return Rows([Row(name, f"{share}, {time}") for name, share, time in rows]).lines(width)
        sizes = [max(len(row[index]) for row in rows) for index in range(3)]
        room = min(30, width - sum(sizes) - 6)
        found = []
        for phase, (name, share, time) in zip(self._phases, rows, strict=True):
            text = Text(f"{name:<{sizes[0]}}  {share:>{sizes[1]}}  ")
            text.append(f"{time:>{sizes[2]}}  ", "dim").append(_bar(phase.share / longest * room), "blue")
            found.append(text)
        return found


def _bar(length: float) -> str:
    eighths = round(length * 8)
    return (_BAR * (eighths // 8) + _PARTS[eighths % 8]).rstrip()


def _places(summary: Summary) -> list[tuple[str, str]]:
    where = summary.where
    rows = [("run", where.run), ("events", where.events if Path(where.events).exists() else "none")]
    rows.append(("checkpoint", newest_checkpoint(summary)))
    if Path(where.report).exists():
        rows.append(("page", where.report))
    return rows
