"""`paceline report` on plans, measurements and results of `paceline verify`: cards and pages of their own."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.card_layout import Card, Grid
from paceline.cli.cards import landscape_card, plan_card
from paceline.cli.exits import numbers_first
from paceline.cli.result import page_path, print_cards, print_document
from paceline.cli.verify import parity_card
from paceline.records.errors import PacelineError
from paceline.records.parity import parity_file, read_parity
from paceline.records.rundir import RunDir
from paceline.report.landscape.landscape_page import names_of, write_landscape, write_landscape_page
from paceline.report.landscape.measurement import Landscape, load_landscape
from paceline.report.landscape.quantities import quantities
from paceline.report.landscape.tables import side_by_side
from paceline.report.parity.parity_page import write_parity_page
from paceline.report.plan.plan_page import load_plan, write_page, write_plan_page


def report_plans(paths: Sequence[Path], output: Path | None, as_json: bool) -> None:
    """Write pages and print numbers.

    Args:
        paths: run directories of `paceline plan`, at least one.
        output: where the page of a single plan goes; None: each into its own directory, with `as_json` nowhere.
        as_json: print one JSON document instead of cards.

    Raises:
        PacelineError: several plans with one output, a record is missing or damaged, or a page cannot be written.
    """
    if output is not None and len(paths) > 1:
        raise PacelineError(
            f"--output {output}: several plans do not share a page",
            hint="leave --output out, and each gets a page in its own directory",
        )
    loaded = [load_plan(path) for path in paths]

    def write(path: Path) -> Path | None:
        if output is None:
            return None if as_json else write_plan_page(path)
        page = page_path(output)
        write_page(load_plan(path), page)
        return page

    with numbers_first() as attempt:
        pages = [attempt(functools.partial(write, path)) for path in paths]
        if as_json:
            print_document(plans=[one.result for one in loaded])
            return
        print_cards((plan_card(one.result, RunDir(one.path)), page) for one, page in zip(loaded, pages, strict=True))


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
        if as_json:
            print_document(landscapes=[one.result for one in loaded])
            return
        one = len(loaded) == 1
        print_cards([(landscape_card(loaded[0].result, RunDir(loaded[0].path)) if one else _comparison(loaded), page)])


def _write(loaded: Sequence[Landscape], output: Path | None, as_json: bool) -> Path | None:
    if output is None and as_json:
        return None
    if output is None and len(loaded) == 1:
        return write_landscape(loaded[0].path)[0]
    page = page_path(output or Path("report.html"))
    write_landscape_page(loaded, page)
    return page


def _comparison(loaded: Sequence[Landscape]) -> Card:
    table = side_by_side([quantities(one.result) for one in loaded], names_of(loaded))
    return Card([Grid(table.columns, table.rows)])


def report_parity(paths: Sequence[Path], output: Path | None, as_json: bool) -> None:
    """Write the page of a result of `paceline verify`, and print its card.

    Args:
        paths: one parity.json, or a directory that holds it.
        output: where the page goes; None: beside parity.json, with `as_json` nowhere.
        as_json: print the result instead of a card.

    Raises:
        PacelineError: other paths are given too, the result cannot be read, or the page cannot be written.
    """
    source = parity_file(paths[0])
    if source is None or len(paths) > 1:
        raise PacelineError("a result of paceline verify does not share a page", hint="call paceline report for each")
    result = read_parity(source)

    def write() -> Path | None:
        if output is None and as_json:
            return None
        page = page_path(output) if output is not None else source.with_suffix(".html")
        write_parity_page(result, source, page)
        return page

    with numbers_first() as attempt:
        page = attempt(write)
        if as_json:
            print_document(parity=result)
            return
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(parity_card(result, source, width) + "\n")
        if page is not None:
            sys.stdout.write(f"\npage: {page}\n")
