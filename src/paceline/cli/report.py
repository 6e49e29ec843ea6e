"""`paceline report`: what happened, and how do these runs compare?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.output_format import Format

# Everything else is imported when the verb runs: `paceline --help` has no use for numpy, jinja2 or rich.
if TYPE_CHECKING:
    from paceline.cli.card_layout import Card
    from paceline.report.comparison import Comparison
    from paceline.report.run_record import Run
    from paceline.report.summary import Summary


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directory, or several to compare; or one parity.json of verify."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Page to write. [default: RUN/report.html for one run, ./report.html for several]",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC=VALUE",
            help="Target whose time is reported, for example accuracy=0.90. [default: the run's]",
        ),
    ] = None,
    output_format: Annotated[
        Format,
        typer.Option(
            "--format", help="text for cards and a page; json for the numbers, and a page only with --output."
        ),
    ] = Format.TEXT,
) -> None:
    """Show what happened in a run, or compare several: a card here and one HTML page.

    The page is one file and needs no network.
    """
    from paceline.records.parity import parity_file

    as_json = output_format is Format.JSON
    if any(parity_file(path) is not None for path in runs):
        from paceline.cli.report_measured import report_parity

        report_parity(runs, output, as_json)
        return
    kind = _kind(runs, target)
    if kind == "landscape":
        from paceline.cli.report_measured import report_landscapes

        report_landscapes(runs, output, as_json)
    elif kind == "plan":
        from paceline.cli.report_measured import report_plans

        report_plans(runs, output, as_json)
    else:
        _report_runs(runs, output, target, as_json)


def _report_runs(paths: Sequence[Path], output: Path | None, target: str | None, as_json: bool) -> None:
    from paceline.cli.exits import numbers_first
    from paceline.cli.result import page_path, print_cards, print_document
    from paceline.records.rundir import RunDir
    from paceline.records.target import parse_target
    from paceline.report.comparison import compare
    from paceline.report.page.run_page import write_page
    from paceline.report.run_record import load_run
    from paceline.report.summary import summarise

    goal = parse_target(target) if target is not None else None
    loaded = [load_run(path) for path in paths]
    if goal is not None:
        _check_metric(goal.metric, loaded)
    summaries = [summarise(run, goal) for run in loaded]
    comparison = compare(loaded, summaries)

    def write() -> Path | None:
        if output is None and as_json:
            return None
        own = RunDir(loaded[0].path).report if len(loaded) == 1 else Path("report.html")
        page = page_path(output or own)
        write_page(loaded, page, summaries, comparison)
        return page

    with numbers_first() as attempt:
        written = attempt(write)
        if as_json:
            print_document(runs=summaries, comparison=comparison if len(summaries) > 1 else None)
        else:
            print_cards([(_all_cards(loaded, summaries, comparison), written)])


_OWN_PAGES = ("landscape", "plan")
"""Verbs whose runs have cards and pages of their own."""


def _kind(paths: Sequence[Path], target: str | None) -> str | None:
    """The verb of these runs where it has a page of its own, else None; refuses what cannot stand on one page."""
    from paceline.records.errors import PacelineError
    from paceline.records.rundir import read_info

    verbs = [verb if (verb := read_info(path).verb) in _OWN_PAGES else None for path in paths]
    kind = next((verb for verb in verbs if verb is not None), None)
    if kind is None:
        return None
    other = next((index for index, verb in enumerate(verbs) if verb != kind), None)
    if other is not None:
        raise PacelineError(
            f"runs of paceline {kind} and other runs do not share a page",
            why=f"{paths[verbs.index(kind)]} is a {kind}, {paths[other]} is not",
            hint="call paceline report for each kind",
        )
    if target is not None:
        raise PacelineError(f"--target {target}: a {kind} has no target", hint="leave --target out")
    return kind


def _check_metric(metric: str, runs: Sequence[Run]) -> None:
    from paceline.records.errors import PacelineError, choices

    if all(run.info.verb == "run" for run in runs):
        raise PacelineError(f"--target {metric}: paceline run does not observe metrics", hint="leave --target out")
    known = sorted({name for run in runs for name in run.evaluations.value})
    if known and metric not in known:
        raise PacelineError(f"--target {metric}: no run evaluated that", hint=f"evaluated were: {choices(known)}")


def _all_cards(runs: Sequence[Run], summaries: Sequence[Summary], comparison: Comparison) -> Card:
    from paceline.cli.card_layout import Card
    from paceline.cli.cards import comparison_card, propose, run_card

    cards = []
    for run, summary in zip(runs, summaries, strict=True):
        steps = [step for step in propose(summary, run.info) if not step.command.startswith("paceline report")]
        cards.append(run_card(summary, run.info, steps))
    if len(runs) > 1:
        cards.append(comparison_card(comparison))
    return Card(*(group for card in cards for group in card.groups))
