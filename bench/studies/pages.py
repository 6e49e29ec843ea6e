"""What the pages of all studies share: figures as bytes, numbers with their n, on what it was measured."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.studies.cell import Cell, final
from bench.studies.compare import Arrival, mean_interval
from bench.studies.pace import minutes

COLOURS = {"first": "#1b6ca8", "second": "#c8553d", "third": "#4f7f3a", "grey": "#6b7280"}
"""Told apart in grey too, and by those who see no red or green."""
STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#4b5563",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.facecolor": "white",
    "font.size": 10,
    "axes.axisbelow": True,
    "grid.color": "#e5e7eb",
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "svg.hashsalt": "paceline",  # the same numbers give the same file
}
matplotlib.rcParams.update(STYLE)
GENERATED = "<!-- Written by `python -m bench.studies.report` from bench/records; do not edit. -->"


@dataclass(frozen=True)
class Page:
    """A rendered study.

    Attributes:
        name: of the Markdown file, without its ending.
        text: Markdown.
        figures: by file name; drawn when they are written.
    """

    name: str
    text: str
    figures: Mapping[str, Figure] = field(default_factory=dict)


def figure(width: float = 7.2, height: float = 4.0, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure in the common style; sizes in inches."""
    made = Figure(figsize=(width, height), layout="constrained")
    return made, list(made.subplots(1, columns, squeeze=False)[0])


def as_svg(made: Figure) -> bytes:
    """The figure's file; the same for the same numbers."""
    target = io.BytesIO()
    made.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    # matplotlib leaves blanks at line ends, which git complains about.
    return b"\n".join(line.rstrip() for line in target.getvalue().splitlines()) + b"\n"


def mean_text(values: Sequence[float], form: str = ".2f") -> str:
    """A mean with its 95 % interval (from 3 values), else with the range; always with n."""
    if not values:
        return "none"
    mean, n = statistics.fmean(values), len(values)
    found = mean_interval(values)
    if found is not None:
        return f"{mean:{form}} [{found.low:{form}}, {found.high:{form}}], n = {n}"
    if n == 2:
        return f"{mean:{form}} ({min(values):{form}} to {max(values):{form}}), n = 2"
    return f"{mean:{form}}, n = 1 (no interval)"


def median_text(values: Sequence[float], form: str = ".3g") -> str:
    """A median with the range, and n."""
    if not values:
        return "none"
    if len(values) == 1:
        return f"{values[0]:{form}}, n = 1"
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}}), n = {len(values)}"


def arrival_text(found: Arrival, form: str = ",.0f") -> str:
    """The median, or its bound where the middle run was cut off; the range of runs that arrived; what the rest did."""
    if found.diverged == found.runs:
        return "diverged"
    arrived = [] if found.low is None or found.runs == 1 else [f"{found.low:{form}} to {found.high:{form}}"]
    if found.arrived == 1 and arrived:
        arrived = [f"one arrived at {found.low:{form}}"]
    cut = []
    if found.beyond is not None:
        when = f"at {found.beyond:{form}}" if found.cut_off == 1 else f"from {found.beyond:{form}} on"
        cut = [f"{found.cut_off} of {found.runs} cut off {when}"]
    lost = [f"{found.diverged} of {found.runs} diverged"] if found.diverged else []
    if found.median is not None:
        head, rest = f"{found.median:{form}}", [*arrived, *cut, *lost]
    elif found.runs // 2 < found.arrived + found.cut_off:
        head, rest = f"> {found.beyond:{form}}", [*arrived, *(cut if arrived or lost else ()), *lost]
    else:  # the middle run can never arrive, so there is no median, not even a bound
        head, rest = lost[0], [*arrived, *cut]
    return f"{head} ({'; '.join(rest)})" if rest else head


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Markdown; the first column to the left, all others to the right."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, marks, *rows)]


def hardware(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """On what, with what, when, and what it cost: from the records themselves."""
    machines = sorted({f"{r['machine']['cpu']}, {r['machine']['usable_cores']} cores" for r in records})
    versions = sorted({f"torch {r['versions']['torch']}" for r in records if "versions" in r})
    ours = sorted({f"paceline {r['versions']['paceline']}" for r in records if "versions" in r})
    commits = sorted({(r["machine"]["git_commit"] or "unknown")[:10] for r in records})
    changed = sum(bool(r["machine"].get("source_changed")) for r in records)
    days = sorted({r["started_at"][:10] for r in records})
    spent = sum(r["duration_s"] for r in records)
    when = _span(days)
    lines = [
        f"- Hardware: {'; '.join(machines)}; 2 workers of one thread each (gloo).",
        f"- Software: {', '.join([*ours, *versions])}; commit {', '.join(commits)}.",
        f"- Cost: {len(records)} cell(s), {minutes(spent)} in all; {when}.",
        _load_line(records),
    ]
    if changed:
        lines.append(f"- {changed} cell(s) ran on source that differed from its commit.")
    return lines


def _span(days: Sequence[str]) -> str:
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


BUSY_ABOVE = 1.0
"""Load average of the minute before a cell, above which its seconds are marked: one core had something else to do."""
BUSY_MARK = " †"
_LOAD_WORDS = "it counts the cell before as well, whose two workers alone make about 2"


def load_before(record: Mapping[str, Any]) -> float | None:
    """Load average of the minute before a cell; None where it was not recorded."""
    found = record["machine"].get("load_average_before")
    return float(found[0]) if found else None


def busy(records: Iterable[Mapping[str, Any]]) -> int:
    """How many of them began at a load above `BUSY_ABOVE`."""
    return sum((load_before(record) or 0.0) > BUSY_ABOVE for record in records)


def busy_note(records: Iterable[Mapping[str, Any]]) -> str:
    """What `BUSY_MARK` behind seconds means; empty where no record needs it."""
    if not busy(records):
        return ""
    return (
        f"†: some of these runs began at a load average above {BUSY_ABOVE:g} (of the minute before; {_LOAD_WORDS}), so "
        "other work may have lengthened their seconds."
    )


def _load_line(records: Sequence[Mapping[str, Any]]) -> str:
    known = [value for record in records if (value := load_before(record)) is not None]
    unknown = len(records) - len(known)
    if not known:
        return "- Load of the machine: not recorded, so nothing is known of other work beside what was timed."
    parts = [f"{min(known):.1f} to {max(known):.1f}"]
    if above := busy(records):
        parts.append(
            f"above {BUSY_ABOVE:g} before {above} of {len(records)}, whose seconds other work may have lengthened"
        )
    parts += [f"not recorded for {unknown}"] if unknown else []
    return f"- Load average of the minute before each cell ({_LOAD_WORDS}): {'; '.join(parts)}."


def diverged(record: Mapping[str, Any]) -> bool:
    """Whether a training ended so; how far it came and how long it took then say nothing of the others."""
    return bool(record["training"]["end"] == "diverged")


def steps_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Steps of runs that did not diverge, normally the same for all."""
    steps = sorted({record["training"]["steps"] or 0 for record in records if not diverged(record)})
    if not steps:
        return "none"
    return f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"


def accuracy_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Mean test accuracy in percent of runs that did not diverge, and how many did."""
    values = [100 * value for record in records if (value := final(record)) is not None]
    lost = sum(diverged(record) for record in records)
    silent = len(records) - len(values) - lost
    parts = [mean_text(values)]
    parts += [f"{lost} diverged"] if lost else []
    parts += [f"{silent} without an accuracy"] if silent else []
    return "; ".join(parts)


def as_cell_command(flags: Mapping[str, str]) -> str:
    """`paceline train ...` of flags, without the seed."""
    command = Cell("any", 0, flags).command
    return " ".join(command[: command.index("--seed")])
