"""`paceline report` on measurements of `paceline landscape`: their card and page, or several side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.card_layout import Card, Grid, card_console, show
from paceline.cli.exits import numbers_first
from paceline.cli.landscape_card import landscape_card
from paceline.records.rundir import RunDir
from paceline.report.landscape.facts import facts
from paceline.report.landscape.load import Landscape, load_landscape
from paceline.report.landscape.page import names_of, write_comparison_page, write_landscape_page
from paceline.report.landscape.tables import side_by_side
from paceline.report.landscape.write import write_landscape


def report_landscapes(paths: Sequence[Path], output: Path | None, as_json: bool) -> None:
    """Write the page and print numbers.

    Args:
        paths: run directories of `paceline landscape`, at least one.
        output: where the page goes; None: one measurement's page and pictures into its directory, the page of several
            into the working directory, with `as_json` nowhere.
        as_json: print one JSON document instead of cards.

    Raises:
        PacelineError: a record is missing or damaged, or the page cannot be written.
    """
    loaded = [load_landscape(path) for path in paths]
    with numbers_first() as attempt:
        page = attempt(lambda: _write(loaded, output, as_json))
        _show(loaded, page, as_json)


def _show(loaded: Sequence[Landscape], page: Path | None, as_json: bool) -> None:
    if as_json:
        import msgspec

        document = {"schema": 1, "landscapes": [one.result for one in loaded]}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
        return
    one = len(loaded) == 1
    show(card_console(), landscape_card(loaded[0].result, RunDir(loaded[0].path)) if one else _comparison(loaded))
    if page is not None:
        sys.stdout.write(f"\npage: {page}\n")


def _write(loaded: Sequence[Landscape], output: Path | None, as_json: bool) -> Path | None:
    if output is None and as_json:
        return None
    if output is None and len(loaded) == 1:
        return write_landscape(loaded[0].path)[0]
    page = output or Path("report.html")
    page = page / "report.html" if page.is_dir() else page
    if len(loaded) == 1:
        write_landscape_page(loaded[0], page)
    else:
        write_comparison_page(loaded, page)
    return page


def _comparison(loaded: Sequence[Landscape]) -> Card:
    table = side_by_side([facts(one.result) for one in loaded], names_of(loaded))
    return Card([Grid(table.columns, table.rows)])
