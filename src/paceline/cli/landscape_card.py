"""The card of a measurement, and the one JSON object."""

from __future__ import annotations

import sys

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from paceline.cli.card import safe
from paceline.cli.fact_card import fact_table, place_table
from paceline.records.landscape import LandscapeResult, arrays_path, read_result, result_path
from paceline.records.rundir import RunDir
from paceline.report.landscape.facts import facts, headline
from paceline.report.landscape.write import write_landscape


def show_landscape(run: RunDir, format_: str) -> None:
    """Write page and pictures, and show the numbers."""
    write_landscape(run.path)
    result = read_result(run)
    if format_ == "json":
        import msgspec

        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        return
    console = Console()
    console.print(landscape_card(result, run))


def landscape_card(result: LandscapeResult, run: RunDir) -> RenderableType:
    """Numbers with their errors, warnings, and where everything is."""
    parts: list[RenderableType] = [
        Text(""),
        Text(safe(f"{result.task}: landscape"), style="bold"),
        Text(safe(headline(result)), style="dim"),
        Text(f"batch norm: {result.batch_norm}", style="dim"),
        Text(""),
        fact_table(facts(result)),
        Text(""),
        _places(run),
    ]
    parts += [Text.assemble(("note: ", "yellow"), safe(warning)) for warning in result.warnings]
    return Group(*parts)


def _places(run: RunDir) -> Table:
    rows = [("run", run.path), ("result", result_path(run)), ("arrays", arrays_path(run)), ("page", run.report)]
    return place_table([*rows, *(("picture", path) for path in sorted(run.path.glob("*.png")))])
