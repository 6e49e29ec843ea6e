"""The card of a plan, and `paceline report` on plans: a card and a page each."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.card_layout import Card, Grid, Rows, Words, card_console, show
from paceline.cli.exits import numbers_first
from paceline.cli.fact_card import fact_rows, place_rows
from paceline.records.errors import PacelineError
from paceline.records.plan_results import AnyPlan, BatchResult, result_path
from paceline.records.rundir import RunDir
from paceline.report.plan.facts import facts, headline, table, title, warnings
from paceline.report.plan.load import LoadedPlan, load_plan
from paceline.report.plan.page import write_page
from paceline.report.plan.write import write_plan_page


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
    with numbers_first() as attempt:
        pages = [attempt(functools.partial(_write, path, output, as_json)) for path in paths]
        _show(loaded, pages, as_json)


def _show(loaded: Sequence[LoadedPlan], pages: Sequence[Path | None], as_json: bool) -> None:
    if as_json:
        import msgspec

        document = {"schema": 1, "plans": [one.result for one in loaded]}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
        return
    console = card_console()
    for one, page in zip(loaded, pages, strict=True):
        show(console, plan_card(one.result, RunDir(one.path)))
        if page is not None:
            sys.stdout.write(f"\npage: {page}\n")


def _write(path: Path, output: Path | None, as_json: bool) -> Path | None:
    if output is None:
        return None if as_json else write_plan_page(path)
    page = output / "report.html" if output.is_dir() else output
    write_page(load_plan(path), page)
    return page


def plan_card(result: AnyPlan, run: RunDir) -> Card:
    """Warnings first, numbers with their intervals, the table that answers, and where everything is.

    Args:
        result: of the plan.
        run: its directory.
    """
    opening = [Words(title(result), "bold"), Words(headline(result), "dim")]
    opening += [Words(warning, head=("note: ", "yellow")) for warning in warnings(result)]
    answer = table(result)
    grid = [Grid(answer.columns, answer.rows, answer.heads, answer.caption)] if answer.rows else []
    command = []
    if isinstance(result, BatchResult) and result.recommendation is not None:
        command = [Words("to do it", "dim"), Words(result.recommendation.command, "bold", indent="  ")]
    return Card([Words("")], opening, [fact_rows(facts(result))], grid, command, [_places(run)])


def _places(run: RunDir) -> Rows:
    rows = [("run", run.path), ("result", result_path(run)), ("page", run.report)]
    return place_rows([*rows, *(("picture", path) for path in sorted(run.path.glob("*.png")))])
