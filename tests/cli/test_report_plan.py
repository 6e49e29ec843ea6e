"""`paceline report` on plans: the card, the page, and what has no meaning for them."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from paceline.cli.card_layout import show
from paceline.cli.cards import plan_card
from paceline.cli.parser import parse_and_run
from paceline.cli.verbs import find
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir
from paceline.report.plan.sections import content, warnings
from tests.report import landscapes, plans


@pytest.fixture
def paceline(capsys):
    """Runs the verb in this process and gives what it printed."""
    command = find(["report"])[1]

    def call(*arguments):
        parse_and_run("paceline report", command, command.load(), [*map(str, arguments)], None)
        return capsys.readouterr().out

    return call


def drawn(path, result, width=200):
    """The card as plain text, spaces made one."""
    out = StringIO()
    show(Console(file=out, width=width, color_system=None), plan_card(result, RunDir(path)))
    return out.getvalue()


@pytest.mark.parametrize("kind", plans.KINDS)
def test_the_card_has_warnings_facts_the_answer_and_where_it_is(tmp_path, kind):
    """In this order; every cell of the table that answers is there."""
    result = plans.result(kind)
    path = plans.write(tmp_path / "plan", kind, result)

    card = drawn(path, result, width=240)

    order = [
        *warnings(result),
        content(result).quantities[0].label,
        content(result).quantities[-1].label,
        content(result).answer.caption,
        str(path),
    ]
    places = [card.index(one) for one in order]
    assert places == sorted(places)
    assert [cell for row in content(result).answer.rows for cell in row if cell not in card] == []


def test_the_card_of_a_batch_ends_in_the_command_to_type(tmp_path):
    """The recommendation's own, on a line of its own."""
    result = plans.batch()

    card = drawn(plans.write(tmp_path / "plan", "batch"), result)

    assert result.recommendation.command in [line.strip() for line in card.splitlines()]


def test_the_card_obeys_nothing_that_a_name_holds(tmp_path):
    """Escape sequences and markup in a record are shown as text."""
    result = plans.result("data")
    evil = type(result)(
        **{name: getattr(result, name) for name in result.__struct_fields__} | {"task": "\x1b[31m[red]x"}
    )

    card = drawn(plans.write(tmp_path / "plan", "data", evil), evil)

    assert "\x1b" not in card
    assert "[red]x: plan of data" in card


@pytest.mark.parametrize("kind", plans.KINDS)
def test_a_plan_gets_a_page_and_pictures_in_its_directory(tmp_path, paceline, kind):
    """The card first; the path of the page is the last line."""
    path = plans.write(tmp_path / "plan", kind)

    out = paceline(path)

    assert content(plans.result(kind)).quantities[0].value in out
    assert out.rstrip().endswith(f"page: {path / 'report.html'}")
    assert (path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert list(path.glob("*.png"))


def test_output_takes_the_page_of_one_plan_elsewhere(tmp_path, paceline):
    """A directory gets report.html; nothing is added to the plan."""
    path = plans.write(tmp_path / "plan", "trends")
    (tmp_path / "pages").mkdir()

    paceline(path, "--output", tmp_path / "pages")

    assert (tmp_path / "pages" / "report.html").exists()
    assert {one.name for one in path.iterdir()} == {"run.json", "result.json"}


def test_several_plans_get_a_card_and_a_page_each(tmp_path, paceline):
    """Of different kinds too."""
    paths = [plans.write(tmp_path / kind, kind) for kind in ("data", "trends")]

    out = paceline(*paths)

    assert out.index("plan of data") < out.index("Training times over the years")
    assert [line for line in out.splitlines() if line.startswith("page: ")] == [
        f"page: {path / 'report.html'}" for path in paths
    ]


def test_json_holds_the_results_and_writes_no_page(tmp_path, paceline):
    """As they stand in result.json."""
    path = plans.write(tmp_path / "plan", "speed")

    document = json.loads(paceline(path, "--format", "json"))

    assert document["plans"] == [json.loads((path / "result.json").read_text())]
    assert not (path / "report.html").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["landscape"], "runs of paceline plan and other runs do not share a page"),
        (["--target", "accuracy=0.9"], "a plan has no target"),
        (["plan", "--output", "page.html"], "several plans do not share a page"),
    ],
)
def test_what_has_no_meaning_for_plans_is_one_message(tmp_path, paceline, monkeypatch, more, said):
    """A measurement beside a plan, a target for it, one page for two; nothing is written."""
    monkeypatch.chdir(tmp_path)
    path = plans.write(tmp_path / "plan", "trends")
    landscapes.write(tmp_path / "landscape", *landscapes.only("line"))

    with pytest.raises(PacelineError, match=said):
        paceline(path, *more)

    assert not list(tmp_path.rglob("*.html"))
