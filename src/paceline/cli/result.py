"""Print the result of a verb: a card and the path of the report page, or one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from paceline.cli.card_layout import Card, card_console, show
from paceline.cli.cards import landscape_card, run_card
from paceline.cli.exits import numbers_first
from paceline.records.rundir import RunDir
from paceline.report.page.run_page import prepare_page, write_page
from paceline.report.run_record import load_run
from paceline.report.summary import summarise


def show_result(run: RunDir, format_: str) -> None:
    """Write the report page of a training run and show its numbers."""
    loaded = load_run(run.path)
    with numbers_first() as attempt:
        attempt(lambda: write_page([loaded], run.report))
        summary = summarise(loaded)  # after the page, so that it is among what there is to see
        if format_ == "json":
            sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")
        else:
            show(card_console(), run_card(summary, loaded.info))


def show_landscape(run: RunDir, format_: str) -> None:
    """Write page and pictures of a measurement, and show its numbers."""
    from paceline.records.landscape import read_result
    from paceline.report.landscape.landscape_page import write_landscape

    with numbers_first() as attempt:
        attempt(lambda: write_landscape(run.path))
        result = read_result(run)
        if format_ == "json":
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            show(card_console(), landscape_card(result, run))


def page_path(output: Path) -> Path:
    """The page that `--output` means: a file, or report.html in a directory."""
    return output / "report.html" if output.is_dir() else output


def print_cards(cards: Iterable[tuple[Card, Path | None]]) -> None:
    """Print cards, each with the path of its page."""
    console = card_console()
    for card, page in cards:
        show(console, card)
        if page is not None:
            sys.stdout.write(f"\npage: {page}\n")


def print_document(**document: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode({"schema": 1} | document), indent=2).decode() + "\n")


__all__ = ["page_path", "prepare_page", "print_cards", "print_document", "show_landscape", "show_result"]
