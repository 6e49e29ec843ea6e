"""`paceline report` as it is typed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from paceline.cli.card_layout import show
from paceline.cli.cards import propose, run_card
from paceline.cli.parser import parse_and_run
from paceline.cli.verbs import find
from paceline.records.errors import PacelineError
from paceline.report.run_record import load_run
from paceline.report.summary import summarise
from tests.report import landscapes

_spec = importlib.util.spec_from_file_location("report_builder", Path(__file__).parents[1] / "report" / "conftest.py")
builder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builder)


@pytest.fixture
def runs(tmp_path):
    """A builder of run directories below a fresh directory."""
    return builder.Runs(tmp_path)


@pytest.fixture
def paceline(capsys):
    """Runs the verb in this process and gives what it printed."""
    command = find(["report"])[1]

    def call(*arguments):
        parse_and_run("paceline report", command, command.load(), [*map(str, arguments)], None)
        return capsys.readouterr().out

    return call


def drawn(summary, info, width=100):
    """The card as plain text."""
    out = StringIO()
    show(Console(file=out, width=width, color_system=None), run_card(summary, info))
    return out.getvalue()


def test_one_run_gives_a_card_and_a_page_in_its_directory(runs, paceline):
    """The card has the numbers, the page stands in the run directory, and its path is the last line."""
    path = runs.plain()

    out = paceline(path)

    assert "0.9120  912 of 1,000" in out
    assert "640  95 % interval 640 to 640" in out
    assert out.rstrip().endswith(f"page: {path / 'report.html'}")
    assert (path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_several_runs_give_cards_a_comparison_and_a_page_here(runs, paceline, tmp_path, monkeypatch):
    """Without --output the page of several runs goes to the working directory."""
    paths = [runs.plain("fast"), runs.plain("slow", pace=2.0)]
    monkeypatch.chdir(tmp_path)

    out = paceline(*paths)

    assert "× 2.000" in out
    assert (tmp_path / "report.html").exists()
    assert not (paths[0] / "report.html").exists()


def test_output_may_be_a_file_or_a_directory(runs, paceline, tmp_path):
    """A file is that file, made with its directories; a directory gets report.html."""
    path = runs.plain()

    paceline(path, "--output", tmp_path / "new" / "page.html")
    paceline(path, "--output", tmp_path / "new")

    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == ["page.html", "report.html"]


def test_json_gives_the_numbers_and_no_page(runs, paceline):
    """The output is one JSON document; nothing is written unless --output asks for it."""
    path = runs.plain()

    document = json.loads(paceline(path, "--format", "json", "--target", "accuracy=0.90"))

    (one,) = document["runs"]
    assert document["comparison"] is None
    assert one["metrics"][1]["final"]["value"] == 0.912
    assert one["throughput"]["median"] == pytest.approx(640)
    assert one["target"]["first"]["elapsed_s"] == 3.0
    assert not (path / "report.html").exists()


def test_json_of_several_runs_holds_their_comparison(runs, paceline):
    """Ratios and differing settings are in it, in the order of the arguments."""
    document = json.loads(paceline(runs.plain("fast"), runs.plain("slow", pace=2.0), "--format", "json"))

    numbers = {row["name"]: row for row in document["comparison"]["numbers"]}
    assert document["comparison"]["runs"] == ["fast", "slow"]
    assert numbers["training time"]["ratios"] == [1.0, 2.0]


def test_a_target_that_no_run_evaluated_lists_what_was(runs, paceline):
    """A misspelt metric is an error with the legal names, before anything is written."""
    path = runs.plain()

    with pytest.raises(PacelineError) as caught:
        paceline(path, "--target", "acuracy=0.9")

    assert caught.value.hint == "evaluated were: accuracy, loss"
    assert not (path / "report.html").exists()


def test_a_directory_that_is_no_run_is_one_message_and_writes_nothing(runs, paceline, tmp_path):
    """Also when a good run stands beside it."""
    good = runs.plain()
    (tmp_path / "empty").mkdir()

    with pytest.raises(PacelineError) as caught:
        paceline(good, tmp_path / "empty", "--output", tmp_path / "page.html")

    assert "is not a run directory" in caught.value.what
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("content", "said"), [('{"schema": 2}', "newer Paceline"), ('{"schema": 1', "damaged"), ("[1]", "damaged")]
)
def test_a_run_of_another_schema_or_a_damaged_one_is_one_message(runs, paceline, content, said):
    """run.json decides, and the message says which of the two it is."""
    path = runs.plain()
    (path / "run.json").write_text(content)

    with pytest.raises(PacelineError) as caught:
        paceline(path)

    assert said in caught.value.what


def test_a_run_that_was_killed_at_once_still_has_a_card_and_a_page(runs, paceline):
    """What was not observed is said, and there is no traceback."""
    path = runs.write("dead", [])

    out = paceline(path)

    assert "not observed" in out
    assert "No end was recorded before its first step" in out
    assert (path / "report.html").exists()


def test_the_card_of_an_interrupted_run_says_how_to_go_on(runs):
    """With a checkpoint there is something to resume from, and the command is spelt out."""
    path = runs.write("stopped", [runs.start(), runs.step(1, 0.1), runs.checkpoint(1, 0.4)], info=runs.info("digits"))
    run = load_run(path)

    steps = propose(summarise(run), run.info)

    assert [step.command for step in steps] == [f"paceline train digits --resume {path}", f"paceline report {path}"]


def test_the_card_fits_a_narrow_terminal(runs):
    """At 60 columns no line is longer but for a path, and no number is cut."""
    run = load_run(runs.plain())

    text = drawn(summarise(run), run.info, width=60)

    assert [line for line in text.splitlines() if len(line) > 60 and len(line.split()) > 1] == []
    for number in ("0.9120", "912 of 1,000", "3.25 s", "640", "21.5 %"):
        assert number in text


def test_a_name_cannot_command_the_terminal(runs):
    """Control characters and rich's markup in a run's name come out as text."""
    path = runs.plain(info=runs.info("\x1b[31mred[bold]x[/bold]"))
    run = load_run(path)

    text = drawn(summarise(run), run.info)

    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text


def test_a_landscape_has_its_own_card_page_and_pictures(tmp_path, paceline):
    """The verb in run.json decides: numbers with their errors, the page in the run directory, its path at the end."""
    path = landscapes.write(tmp_path / "sharp", *landscapes.everything())

    out = paceline(path)

    assert "residual 0.004; 30 products" in out
    assert "residual 0.25; not converged: 1 of 2 eigenvalues converged in 30 steps" in out
    assert out.rstrip().endswith(f"page: {path / 'report.html'}")
    assert (path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert (path / "surface.png").exists()


def test_several_landscapes_stand_side_by_side(tmp_path, paceline, monkeypatch):
    """One table, and one page in the working directory."""
    paths = [landscapes.write(tmp_path / name, *landscapes.only(name)) for name in ("line", "trace")]
    monkeypatch.chdir(tmp_path)

    out = paceline(*paths)

    (row,) = [line.split() for line in out.splitlines() if line.startswith("trace ")]
    assert row == ["trace", "not", "measured", "123.5"]
    assert "2 landscapes compared" in (tmp_path / "report.html").read_text()
    assert not (paths[0] / "report.html").exists()


def test_json_of_landscapes_holds_their_results_and_writes_no_page(tmp_path, paceline):
    """The results as they were recorded, one each."""
    path = landscapes.write(tmp_path / "sharp", *landscapes.everything())

    document = json.loads(paceline(path, "--format", "json"))

    assert document["landscapes"] == [json.loads((path / "result.json").read_text())]
    assert not (path / "report.html").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [(["plain"], "do not share a page"), (["--target", "accuracy=0.9"], "a landscape has no target")],
)
def test_what_has_no_meaning_for_landscapes_is_one_message(runs, tmp_path, paceline, more, said):
    """A training run beside a landscape, or a target for it; nothing is written."""
    runs.plain()
    path = landscapes.write(tmp_path / "sharp", *landscapes.everything())

    with pytest.raises(PacelineError) as caught:
        paceline(path, *(tmp_path / one if one == "plain" else one for one in more))

    assert said in caught.value.what
    assert not (path / "report.html").exists()


@pytest.mark.parametrize("verb", ["train", "landscape"])
def test_reporting_works_where_torch_is_not(runs, tmp_path, verb):
    """The verb runs without torch, and its module costs neither numpy nor jinja2 until then."""
    path = runs.plain() if verb == "train" else landscapes.write(tmp_path / "sharp", *landscapes.everything())
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from paceline.cli.main import call\n"
        f"sys.exit(call(['report', {str(path)!r}]))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, check=False)

    assert done.returncode == 0, done.stderr
    assert "page:" in done.stdout
