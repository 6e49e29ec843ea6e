"""The page of an observed run in a browser: quiet, as wide as the window, every figure drawn."""

import pytest

from paceline.report.page.run_page import write_page
from paceline.report.run_record import load_run
from tests.report import browser as browser_module
from tests.report.observed import ERROR, NOTE, begun, left, observation, training, write_run

pytestmark = pytest.mark.skipif(browser_module.chromium() is None, reason="no chromium on PATH")


@pytest.fixture(scope="module")
def browser():
    """One browser for all tests of this module."""
    with browser_module.Browser() as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A run of two ranks with findings, curves and the maps of two loaders."""
    folder = tmp_path_factory.mktemp("page")
    ranks = {rank: [*training(rank), begun(1), left(1)] for rank in (0, 1)}
    ledger = {(loader, 0, rank): [[rank, 2 + rank], [4 + rank, 0]] for loader in (0, 1) for rank in (0, 1)}
    path = write_run(folder / "train", ranks, ledger=ledger, found=observation([ERROR, NOTE]))
    write_page([load_run(path)], folder / "page.html")
    return folder / "page.html"


@pytest.mark.parametrize(("width", "dark"), [(400, True), (1440, False)])
def test_the_page_is_quiet_and_fits(browser, page, width, dark):
    """No console message, nothing wider than the window, five figures of which two are maps."""
    browser.problems.clear()

    browser.open(page, width=width, dark=dark)

    assert browser.problems == []
    assert browser.value("document.scrollingElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('.plot .main-svg').length") >= 5
    assert browser.value("document.querySelectorAll('.plot .heatmaplayer image').length") == 2


def test_figures_show_what_was_recorded(browser, page):
    """A map has all ranks at the top, then each rank, and a color above 1; the axis of curves switches to time."""
    browser.open(page, width=1000, dark=False)
    last = "document.getElementById('run-1-loss').data[0].x.at(-1)"
    steps = browser.value(last)

    drawn = browser.value("(({y, z}) => ({y, z}))(document.getElementById('run-1-ledger-0-0').data[0])")
    browser.value("document.querySelector('input[value=elapsed_s]').click()")

    assert drawn["y"][::-1] == ["all", "0", "1"]
    assert drawn["z"][-1] == [3, 1, 1, 1, 1, 1, 0, 0]
    assert (steps, browser.value(last)) == (10, 2)
