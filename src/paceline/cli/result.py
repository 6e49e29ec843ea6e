"""What a finished training run shows: the card, the report page's path, or one JSON object."""

from __future__ import annotations

import sys

from paceline.cli.card import result_card
from paceline.cli.card_layout import card_console, show
from paceline.cli.exits import numbers_first
from paceline.records.rundir import RunDir
from paceline.report.load import load_run
from paceline.report.page.render import write_page
from paceline.report.summary import summarise


def show_result(run: RunDir, format_: str) -> None:
    """Write the report page and show the run's numbers."""
    loaded = load_run(run.path)
    with numbers_first() as attempt:
        attempt(lambda: write_page([loaded], run.report))
        summary = summarise(loaded)  # after the page, so that it is among what there is to see
        if format_ == "json":
            import msgspec

            sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")
        else:
            show(card_console(), result_card(summary, loaded.info))
