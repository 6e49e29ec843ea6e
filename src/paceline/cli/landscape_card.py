"""The card of a measurement, and the one JSON object."""

from __future__ import annotations

import sys

from paceline.cli.card_layout import Card, Rows, Words, card_console, show
from paceline.cli.exits import numbers_first
from paceline.cli.fact_card import fact_rows, place_rows
from paceline.records.landscape import LandscapeResult, arrays_path, read_result, result_path
from paceline.records.rundir import RunDir
from paceline.report.landscape.facts import facts, headline
from paceline.report.landscape.write import write_landscape


def show_landscape(run: RunDir, format_: str) -> None:
    """Write page and pictures, and show the numbers."""
    with numbers_first() as attempt:
        attempt(lambda: write_landscape(run.path))
        result = read_result(run)
        if format_ == "json":
            import msgspec

            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            show(card_console(), landscape_card(result, run))


def landscape_card(result: LandscapeResult, run: RunDir) -> Card:
    """Numbers with their errors, warnings, and where everything is."""
    opening = [
        Words(f"{result.task}: landscape", "bold"),
        Words(headline(result), "dim"),
        Words(f"batch norm: {result.batch_norm}", "dim"),
    ]
    notes = [Words(warning, head=("note: ", "yellow")) for warning in result.warnings]
    return Card([Words("")], opening, [fact_rows(facts(result))], [_places(run), *notes])


def _places(run: RunDir) -> Rows:
    rows = [("run", run.path), ("result", result_path(run)), ("arrays", arrays_path(run)), ("page", run.report)]
    return place_rows([*rows, *(("picture", path) for path in sorted(run.path.glob("*.png")))])
