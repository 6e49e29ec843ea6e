"""The result card: what a run came to, at the end of `paceline train` and in `paceline report`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paceline.records.schema import RunInfo
from paceline.report import words
from paceline.report.compare import Comparison
from paceline.report.facts import tiles
from paceline.report.summary import Phase, Summary

_BAR = "█"
_PARTS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class NextStep:
    """A command to type, and what for."""

    command: str
    purpose: str


def result_card(
    summary: Summary, info: RunInfo, *, width: int, next_steps: Sequence[NextStep] | None = None
) -> RenderableType:
    """The card of one run: numbers, where the time went, where everything is, what to type next.

    Args:
        summary: of the run.
        info: its run.json.
        width: columns that there are; at least 40 are used.
        next_steps: None proposes what fits the way in which the run ended.
    """
    width = max(40, width)
    good = summary.status in ("finished", "target")
    steps = propose(summary, info) if next_steps is None else next_steps
    parts: list[RenderableType] = [
        Text(safe(summary.name), style="bold"),
        Text(safe(summary.first_line), style="dim"),
        Text(safe(summary.ended), style="" if good else "bold yellow"),
        Text(""),
        _numbers(summary),
    ]
    if summary.phases:
        parts += [Text(""), Text("where the time went (rank 0)", style="dim"), _phases(summary.phases, width)]
    parts += [Text(""), _pairs(_places(summary))]
    for message in summary.warnings:
        parts.append(Text.assemble(("note: ", "yellow"), safe(message)))
    if steps:
        parts += [Text(""), Text("next", style="dim")]
        parts += [Text.assemble("  ", (safe(step.command), "bold"), (f"   {step.purpose}", "dim")) for step in steps]
    return Group(*parts)


def propose(summary: Summary, info: RunInfo) -> list[NextStep]:
    """Commands that fit the way in which the run ended."""
    place = shlex.quote(summary.where.run)
    steps = []
    if summary.status not in ("finished", "target") and info.verb == "train" and summary.checkpoints:
        task = info.config.get("task")
        name = task if isinstance(task, str) else info.name
        steps.append(NextStep(f"paceline train {shlex.quote(name)} --resume {place}", "go on from its last checkpoint"))
    steps.append(NextStep(f"paceline report {place}", "curves and numbers as a page"))
    return steps


def comparison_card(comparison: Comparison) -> RenderableType:
    """What differs between runs, and their numbers with ratios to the first."""
    settings = _columns("what differs", comparison.runs)
    for setting in comparison.settings:
        settings.add_row(safe(setting.name), *map(safe, setting.values))
    if not comparison.settings:
        settings.add_row("no recorded setting", *("" for _ in comparison.runs))
    numbers = _columns("numbers", comparison.runs)
    for row in comparison.numbers:
        cells = []
        for index, (shown, ratio) in enumerate(zip(row.shown, row.ratios, strict=True)):
            cells.append(shown if ratio is None or index == 0 else f"{shown}  × {ratio:.3f}")
        numbers.add_row(safe(row.name), *cells)
    return Group(settings, Text(""), numbers, Text(""), Text(comparison.caution, style="dim"))


def _columns(title: str, runs: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(title, overflow="fold", style="dim")
    for run in runs:
        table.add_column(Text(safe(run)), overflow="fold", justify="right")
    return table


def safe(text: str) -> str:
    """Text of a run without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _numbers(summary: Summary) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(no_wrap=True, style="bold", justify="right")
    grid.add_column(overflow="fold")
    for tile in tiles(summary):
        details = [detail for detail in tile.details if detail]
        grid.add_row(safe(tile.label), tile.value, safe(details[0]) if details else "")
        for detail in details[1:]:
            grid.add_row("", "", Text(safe(detail), style="dim"))
    return grid


def _phases(phases: Sequence[Phase], width: int) -> Table:
    longest = max(phase.share for phase in phases) or 1.0
    room = min(30, max(8, width - 40))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, justify="right", style="dim")
    grid.add_column(no_wrap=True, style="blue")
    for phase in phases:
        bar = _bar(phase.share / longest * room)
        grid.add_row(phase.name, words.share(phase.share), words.duration(phase.seconds), bar)
    return grid


def _bar(length: float) -> str:
    eighths = round(length * 8)
    return (_BAR * (eighths // 8) + _PARTS[eighths % 8]).rstrip()


def _places(summary: Summary) -> list[tuple[str, str]]:
    where = summary.where
    rows = [("run", where.run), ("events", where.events)]
    if where.checkpoint is None:
        rows.append(("checkpoint", "none was completed"))
    else:
        size = f" ({words.size(where.checkpoint_bytes)})" if where.checkpoint_bytes is not None else ""
        rows.append(("checkpoint", where.checkpoint + size))
    if Path(where.report).exists():
        rows.append(("page", where.report))
    return rows


def _pairs(rows: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, safe(value))
    return grid
