"""Cards at any width: no line is too long, and no word is broken."""

from __future__ import annotations

import importlib.util
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from paceline.cli.card_layout import Card, Grid, show
from paceline.cli.cards import comparison_card, landscape_card, plan_card, run_card
from paceline.records.rundir import RunDir
from paceline.records.wrap import wrap
from paceline.report.comparison import compare
from paceline.report.run_record import load_run
from paceline.report.summary import summarise
from tests.report import landscapes, plans

_spec = importlib.util.spec_from_file_location("report_builder", Path(__file__).parents[1] / "report" / "conftest.py")
builder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builder)

WIDTHS = [20, 30, 40, 59, 60, 80, 200]


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    """One of each kind."""
    root = tmp_path_factory.mktemp("cards")
    runs = builder.Runs(root)
    loaded = [load_run(runs.plain()), load_run(runs.plain(info=runs.info("a-run-with-a-long-name")))]
    summaries = [summarise(run) for run in loaded]
    result, arrays = landscapes.everything()
    shape = landscapes.write(root / "sharp", result, arrays)
    found = {
        "train": run_card(summaries[0], loaded[0].info),
        "compared": comparison_card(compare(loaded, summaries)),
        "landscape": landscape_card(result, RunDir(shape)),
    }
    for kind in plans.KINDS:
        found[f"plan {kind}"] = plan_card(plans.result(kind), RunDir(plans.write(root / kind, kind)))
    return found


def drawn(card: Card, width: int) -> list[str]:
    """Its lines as they reach the terminal."""
    out = StringIO()
    show(Console(file=out, width=width, color_system=None), card)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["train", "compared", "landscape", *(f"plan {kind}" for kind in plans.KINDS)])
def test_a_card_fits_its_terminal_and_breaks_no_word(cards: dict[str, Card], kind: str, width: int) -> None:
    """Longer lines are single words, such as paths; every word of the widest card stands in this one."""
    lines = drawn(cards[kind], width)
    words = {word.strip(":,") for line in lines for word in line.split()}
    wanted = {word.strip(":,") for line in drawn(cards[kind], 400) for word in line.split()}

    assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []
    missing = {word for word in wanted - words if not re.fullmatch("[█▏▎▍▌▋▊▉]+", word)}
    assert missing == set()


def test_below_sixty_columns_numbers_stand_behind_their_names(cards: dict[str, Card]) -> None:
    """`name: value`, details indented below."""
    lines = drawn(cards["train"], 40)

    assert "final accuracy: 0.9120" in lines
    assert "  912 of 1,000" in lines
    assert "final accuracy  0.9120  912 of 1,000" in [" ".join(line.split(" ")) for line in drawn(cards["train"], 100)]


def test_a_table_that_does_not_fit_becomes_a_list() -> None:
    """At any width: words that cannot stand side by side stand below each other."""
    grid = Grid(["run", "accuracy"], [["x" * 40, "y" * 40]])

    assert [str(line) for line in grid.lines(70)] == [f"run: {'x' * 40}", f"  accuracy: {'y' * 40}"]


def test_wrapping_keeps_words_whole_and_indents_what_follows() -> None:
    """A word that is too long for the rest of its line begins the next."""
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("one two three", 9, "a: ", "  ") == ["a: one", "  two", "  three"]
    assert wrap("x" * 12, 9, "name: ", "  ") == ["name:", "  " + "x" * 12]
    assert wrap("", 9, "name: ", "  ") == ["name:"]
