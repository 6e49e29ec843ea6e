"""The page of a result of `paceline verify`: it says what was compared, what was not, and what differs."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from paceline.cli.parser import parse_and_run
from paceline.cli.verbs import find
from paceline.records.errors import PacelineError
from paceline.records.parity import Before, Change, Compared, Evaluation, encode_parity, read_parity
from paceline.report.parity.parity_page import render_parity, write_parity_page
from tests.report import browser as browsers
from tests.report import parities
from tests.report.test_page import EVIL, Page

RESULTS = {"pass": parities.passed(), "fail": parities.failed(), "hang": parities.hung()}


@pytest.fixture
def paceline(capsys):
    """Runs `paceline report` in this process and gives what it printed."""
    command = find(["report"])[1]

    def call(*arguments):
        parse_and_run("paceline report", command, command.load(), [*map(str, arguments)], None)
        return capsys.readouterr().out

    return call


def page_of(result, tmp_path):
    """The page, read."""
    return Page(render_parity(result, tmp_path / "parity.json"))


@pytest.mark.parametrize("name", RESULTS)
def test_the_page_is_whole_html(name, tmp_path):
    """Every tag is closed and ids are unique."""
    page = page_of(RESULTS[name], tmp_path)

    assert page.faults == []
    assert len(page.ids) == len(set(page.ids))


def test_a_pass_says_what_was_compared_and_what_was_not(tmp_path):
    """Steps, tensors, precision, tolerance, and both learning rates."""
    text = page_of(parities.passed(), tmp_path).text

    for words in (
        "train.py on 2 ranks and in one process",
        "PASS 2 ranks and one process compute the same for 3 steps.",
        "after each of 3 steps",
        "computed in float64",
        "tolerance 1e-09",
        "the evaluation",
        "batch normalization uses its running statistics",
        "10 further tensors",
        "paceline verify --nproc-per-node 2 /home/me/train.py --epochs 1",
        "ab" * 32,
    ):
        assert words in text
    assert "First difference" not in text


def test_a_fail_says_where_it_begins_and_what_it_looks_like(tmp_path):
    """Tensor, step, factor, line, fault ids, and the findings of the audits."""
    text = page_of(parities.failed(), tmp_path).text

    for words in (
        "parameter:7.weight",
        "0.5, 1 / world size",
        "/home/me/train.py:19",
        "F23, F129",
        "DP123",
        "set_epoch",
    ):
        assert words in text


def test_a_hang_shows_where_each_rank_was(tmp_path):
    """Nothing else was compared, and the page says so."""
    text = page_of(parities.hung(), tmp_path).text

    assert "0 waits all_reduce /home/me/train.py:31 main" in text
    assert "no state: the runs did not come so far" in text


def test_the_script_before_and_evaluations_are_on_the_page(tmp_path):
    """Of --before: its command, and what NEW does in another way."""
    evaluation = Evaluation(samples_of_ranks=[5, 5], samples_of_one=10, count=1, equal_numbers=2)
    change = Change(verdict="fail", text="the learning rate is 2 times that of OLD")
    before = Before(command=["old.py", "--epochs", "1"], script_sha256="cd" * 32, changes=[change])
    text = page_of(parities.passed(evaluation=evaluation, before=before), tmp_path).text

    for words in (
        "10 samples on 2 ranks (5, 5)",
        "old.py --epochs 1",
        "fail: the learning rate is 2 times that of OLD",
    ):
        assert words in text


def test_tensors_are_sorted_by_difference(tmp_path):
    """The largest first; those beyond the first twenty are folded."""
    text = page_of(parities.passed(), tmp_path).text

    places = [text.index(f" {number}.weight") for number in reversed(range(30))]
    assert places == sorted(places)


def test_text_of_the_record_cannot_become_part_of_the_page(tmp_path):
    """Names of tensors, reasons and commands are text."""
    result = parities.passed(reason=EVIL, command=[EVIL], tensors={EVIL: 1.0}, not_compared=[EVIL])
    html = render_parity(result, tmp_path / "parity.json")

    assert EVIL not in html
    assert Page(html).faults == []


def test_an_infinite_difference_survives_the_record(tmp_path):
    """JSON has no infinity."""
    compared = Compared(steps=1, tensors=1, dtype="float64", tolerance=1e-9, floor=0.0, worst=math.inf)
    result = parities.failed(compared=compared, tensors={"parameter:0": math.inf})
    path = tmp_path / "parity.json"
    path.write_bytes(encode_parity(result))

    assert read_parity(path) == result
    assert "not a finite number" in page_of(result, tmp_path).text


def test_the_command_takes_the_file_or_its_directory(tmp_path, paceline):
    """The page stands beside parity.json, and the card is that of `paceline verify`."""
    path = tmp_path / "parity.json"
    path.write_bytes(encode_parity(parities.failed()))

    for given in (path, tmp_path):
        printed = paceline(given)
        assert "FAIL: gradients are 1/2" in printed
        assert str(tmp_path / "parity.html") in printed
    assert Page((tmp_path / "parity.html").read_text()).faults == []


def test_the_command_prints_one_document(tmp_path, paceline):
    """A page only with --output."""
    path = tmp_path / "parity.json"
    path.write_bytes(encode_parity(parities.passed()))

    assert json.loads(paceline(path, "--format", "json"))["parity"]["verdict"] == "pass"
    assert not (tmp_path / "parity.html").exists()


@pytest.mark.parametrize("content", [b"{}", b"[]", b"no", msgspec.json.encode({"verdict": 3})])
def test_another_file_is_refused(content, tmp_path, paceline):
    """With its name."""
    path = tmp_path / "other.json"
    path.write_bytes(content)

    with pytest.raises(PacelineError, match=r"other\.json is no result of paceline verify"):
        paceline(path)


@pytest.mark.skipif(browsers.chromium() is None, reason="no chromium on PATH")
@pytest.mark.parametrize("name", RESULTS)
def test_the_page_is_quiet_and_fits_in_every_width_and_theme(name, tmp_path):
    """No console message, no request but the page itself, nothing wider than the window."""
    path = tmp_path / "parity.html"
    write_parity_page(RESULTS[name], tmp_path / "parity.json", path)
    with browsers.Browser() as browser:
        for width, dark in ((390, False), (1440, True)):
            browser.open(path, width=width, dark=dark)

            assert browser.value("document.scrollingElement.scrollWidth") <= width
            traces = browser.value("document.querySelectorAll('#learning-rate .trace').length")
            assert traces == (0 if name == "hang" else 2)
        assert browser.problems == []
        assert set(browser.requests) <= {path.resolve().as_uri(), "about:blank"}
