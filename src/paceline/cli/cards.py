"""Cards: what a run, a plan or a measurement came to, in a terminal's width.

Each has a title, one line about what was looked at, numbers with what belongs to each, and where everything is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from paceline.cli.card_layout import NARROW, Block, Card, Grid, Row, Rows, Words
from paceline.records.launched import Attempt
from paceline.records.rundir import RunDir
from paceline.records.schema import Finding, RunInfo
from paceline.report import launch_view, words
from paceline.report.comparison import Comparison
from paceline.report.launch_view import Launch
from paceline.report.quantities import Quantity, outcome_of, quantities
from paceline.report.summary import Phase, Summary, newest_checkpoint

# What only a plan or a measurement shows is imported for its card: a training waits for its own.
if TYPE_CHECKING:
    from paceline.records.landscape import LandscapeResult
    from paceline.records.plan_results import AnyPlan

_BAR = "█"
_PARTS = " ▏▎▍▌▋▊▉"
_EARLIER = ("raised", "at", "ended", "log")
"""Rows of the cause that the card shows for every attempt but the last."""
_MAX_RANKS = 8
_MAX_FINDINGS = 20


@dataclass(frozen=True)
class NextStep:
    """A command to type, and what for."""

    command: str
    purpose: str


def run_card(summary: Summary, info: RunInfo, next_steps: Sequence[NextStep] | None = None) -> Card:
    """The card of one run: numbers, where the time went or which attempts there were, where everything is, what next.

    Args:
        summary: of the run.
        info: its run.json.
        next_steps: None proposes what fits the way in which the run ended.
    """
    good = summary.status == "finished" or (summary.status == "target" and summary.launch is None)
    opening = [
        Words(summary.name, "bold"),
        Words(summary.first_line, "dim"),
        Words(summary.ended, "" if good else "bold yellow"),
    ]
    numbers = [Rows([Row(one.label, one.value, one.details) for one in quantities(summary)])]
    if (launch := summary.launch) is not None:
        attempts = [_attempt(each, last=each is launch.attempts[-1]) for each in launch.attempts]
        found = launch.observation
        watched = [(topic, "; ".join(texts)) for topic, texts in found.watched.items() if texts] if found else []
        places = [("not observed" if index == 0 else "", text) for index, text in enumerate(_unseen(launch))]
        if found is None and launch.steps is not None:
            places.append(("findings", f"the records were not judged: paceline audit {shlex.quote(summary.where.run)}"))
        places += [("run", summary.where.run), ("logs", summary.where.logs)]
        return Card(
            opening,
            numbers,
            *_findings(found.findings if found else []),
            [Words("watched", "dim"), _shown_rows(watched)] if watched else [],
            *attempts,
            [_shown_rows(places), *_notes(summary.warnings)],
        )
    phases: list[Block] = [Words("where the time went (rank 0)", "dim"), _Phases(summary.phases)]
    todo: list[Block] = []
    for step in propose(summary, info) if next_steps is None else next_steps:
        todo += [Words(step.command, "bold", indent="  "), Words(step.purpose, "dim", indent="    ")]
    return Card(
        opening,
        numbers,
        phases if summary.phases else [],
        [Rows([Row(label, value) for label, value in _run_places(summary)]), *_notes(summary.warnings)],
        [Words("next", "dim"), *todo] if todo else [],
    )


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
    """The settings that differ between runs, and each run's numbers with their ratio to the first run's."""
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


def plan_card(result: AnyPlan, run: RunDir) -> Card:
    """Warnings first, numbers with their intervals, the table that answers, and where everything is.

    Args:
        result: of the plan.
        run: its directory.
    """
    from paceline.records.plan_results import BatchResult, result_path
    from paceline.report.plan.sections import content, warnings

    what = content(result)
    opening = [Words(what.title, "bold"), Words(what.headline, "dim"), *_notes(warnings(result))]
    command = []
    if isinstance(result, BatchResult) and result.recommendation is not None:
        command = [Words("to do it", "dim"), Words(result.recommendation.command, "bold", indent="  ")]
    table = what.answer
    answer = [Grid(table.columns, table.rows, table.heads, table.caption)] if table.rows else []
    places = [("run", run.path), ("result", result_path(run)), ("page", run.report)]
    return Card([Words("")], opening, [_quantity_rows(what.quantities)], answer, command, [_place_rows(places, run)])


def landscape_card(result: LandscapeResult, run: RunDir) -> Card:
    """Numbers with their errors, warnings, and where everything is."""
    from paceline.records.landscape import arrays_path, result_path
    from paceline.report.landscape.quantities import headline, quantities

    opening = [Words(f"{result.task}: landscape", "bold"), Words(headline(result), "dim")]
    opening.append(Words(f"batch norm: {result.batch_norm}", "dim"))
    places = [("run", run.path), ("result", result_path(run)), ("arrays", arrays_path(run)), ("page", run.report)]
    ending = [_place_rows(places, run), *_notes(result.warnings)]
    return Card([Words("")], opening, [_quantity_rows(quantities(result))], ending)


def _notes(messages: Iterable[str]) -> list[Block]:
    return [Words(message, head=("note: ", "yellow")) for message in messages]


def _quantity_rows(found: Sequence[Quantity]) -> Rows:
    """Details in one text; that of what cannot be relied on stands out."""
    return Rows([Row(each.label, each.value, [each.detail], "" if each.sure else "yellow") for each in found])


def _place_rows(places: Sequence[tuple[str, Path]], run: RunDir) -> Rows:
    """Names and paths of what exists, pictures included."""
    rows = [*places, *(("picture", path) for path in sorted(run.path.glob("*.png")))]
    return Rows([Row(label, str(path)) for label, path in rows if path.exists()])


def _unseen(launch: Launch) -> list[str]:
    """Names without a reason on one line, each of the others on its own."""
    plain = [what for what in launch.not_observed if what in launch_view.NOT_OBSERVED]
    return [*filter(None, (", ".join(plain),)), *launch.not_observed[len(plain) :]]


def _findings(findings: Sequence[Finding]) -> list[list[Block]]:
    found = [_finding(each) for each in findings[:_MAX_FINDINGS]]
    if left := len(findings) - len(found):
        found.append([Words(f"and {words.plural(left, 'finding')} more, on the page", "dim")])
    return found


def _finding(finding: Finding) -> list[Block]:
    style = {"error": "bold red", "warning": "bold yellow"}.get(finding.severity, "bold")
    head = " ".join(filter(None, (finding.code, finding.name, words.place(finding.path, finding.line))))
    found: list[Block] = [Words(head, "bold", head=(f"{finding.severity} ", style))]
    found.append(Words(launch_view.as_shown(finding.message), indent="  "))
    if finding.advice:
        found.append(Words(f"repair: {launch_view.as_shown(finding.advice)}", "dim", indent="  "))
    return found


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
    return [Words(title, "bold"), _shown_rows(rows)]


def _shown_rows(rows: Sequence[tuple[str, str]]) -> Rows:
    """Texts of a script, as a terminal leaves them."""
    return Rows([Row(label, launch_view.as_shown(text)) for label, text in rows])


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


def _run_places(summary: Summary) -> list[tuple[str, str]]:
    where = summary.where
    rows = [("run", where.run), ("events", where.events if Path(where.events).exists() else "none")]
    rows.append(("checkpoint", newest_checkpoint(summary)))
    if Path(where.report).exists():
        rows.append(("page", where.report))
    return rows
