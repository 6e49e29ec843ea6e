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

from bench.studies.cell import Cell
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
        figures: file name -> SVG.
    """

    name: str
    text: str
    figures: Mapping[str, bytes] = field(default_factory=dict)


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
    """A median with its range; `>` where most runs were given up."""
    if found.median is None:
        return "diverged" if found.beyond is None else f"> {found.beyond:{form}}"
    if found.runs == 1:
        return f"{found.median:{form}}"
    high = f"{found.high:{form}}" if found.arrived == found.runs else f"> {found.high:{form}}"
    return f"{found.median:{form}} ({found.low:{form}} to {high})"


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
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    lines = [
        f"- Hardware: {'; '.join(machines)}; 2 workers of one thread each (gloo).",
        f"- Software: {', '.join([*ours, *versions])}; commit {', '.join(commits)}.",
        f"- Cost: {len(records)} cell(s), {minutes(spent)} in all; {when}.",
    ]
    if changed:
        lines.append(f"- {changed} cell(s) ran on source that differed from its commit.")
    return lines


def as_cell_command(flags: Mapping[str, str]) -> str:
    """`paceline train ...` of flags, without the seed."""
    command = Cell("any", 0, flags).command
    return " ".join(command[: command.index("--seed")])
