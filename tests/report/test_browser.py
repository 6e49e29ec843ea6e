"""The report page as a browser sees it: quiet console, no requests, both widths and themes, by keyboard."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from paceline.report.page.run_page import write_page
from paceline.report.run_record import load_run

_spec = importlib.util.spec_from_file_location("report_browser", Path(__file__).with_name("browser.py"))
browser_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(browser_module)

pytestmark = [
    pytest.mark.skipif(browser_module.chromium() is None, reason="no chromium on PATH"),
]

WHERE = [(width, dark) for width in (390, 1440) for dark in (False, True)]


@pytest.fixture(scope="module")
def browser():
    """One browser for all tests of this module."""
    with browser_module.Browser() as one:
        yield one


@pytest.fixture
def page(runs, tmp_path):
    """A page of three runs that look real, one of them resumed."""
    paths = [runs.realistic("one", world=1), runs.realistic("two", resumed=True), runs.realistic("four", world=4)]
    write_page([load_run(path) for path in paths], tmp_path / "page.html")
    return tmp_path / "page.html"


def test_the_page_is_quiet_and_fits_in_every_width_and_theme(browser, page):
    """No console message, no request but the page itself, nothing wider than the window, every figure drawn."""
    for width, dark in WHERE:
        browser.problems.clear()
        browser.requests.clear()

        browser.open(page, width=width, dark=dark)

        assert browser.problems == []
        assert set(browser.requests) <= {page.resolve().as_uri(), "about:blank"}
        assert browser.value("document.scrollingElement.scrollWidth") <= width
        assert browser.value("document.querySelectorAll('.plot .main-svg').length") >= 4
        assert browser.value("document.querySelectorAll('.plot .scatterlayer .trace').length") >= 4 * 3


def test_pages_of_broken_runs_are_quiet_too(browser, runs, tmp_path):
    """Runs without steps, without evaluations, with one step, and with hostile names raise nothing in the script."""
    evil = '</script><img src=x onerror="console.error(1)">%{y} <b>bold</b>'
    paths = [
        runs.write("dead", [runs.start()]),
        runs.write("blind", [runs.start(), runs.step(1, 0.1)], info=runs.info(evil)),
        runs.write("only", [runs.start(), runs.evaluation(0, 1.0, 0.5)]),
    ]
    groups = [[path] for path in paths] + [paths]
    browser.problems.clear()

    for number, group in enumerate(groups):
        write_page([load_run(path) for path in group], tmp_path / f"{number}.html")
        browser.open(tmp_path / f"{number}.html", width=390, dark=True)

    assert browser.problems == []
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert evil in browser.value("document.body.innerText")


def test_the_theme_follows_the_system_the_address_and_the_button(browser, page):
    """The system decides, the address overrides it, the button switches back and redraws the figures."""
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    tick = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"

    browser.open(page, width=1440, dark=True)
    dark = browser.value(ground), browser.value(tick)
    browser.open(page, width=1440, dark=True, fragment="#light")
    light = browser.value(ground), browser.value(tick)
    browser.value("document.getElementById('theme').click()")
    again = browser.value(ground), browser.value(tick)

    assert dark[0] == "rgb(21, 24, 28)"
    assert light[0] == "rgb(252, 251, 248)"
    assert dark[1] != light[1]
    assert again == dark


def test_the_axis_is_switched_from_the_keyboard(browser, page):
    """Tab reaches the skip link first, then the theme, then the axis; an arrow key changes every figure."""
    title = "document.querySelector('#plot-loss .xtitle').textContent"
    focus = "document.activeElement.value || document.activeElement.id || document.activeElement.className"
    browser.open(page, width=1440, dark=False)

    seen, titles = [], []
    for _ in range(3):
        browser.press("Tab")
        seen.append(browser.value(focus))
    for _ in range(2):
        titles.append(browser.value(title))
        browser.press("ArrowRight")
    titles.append(browser.value(title))

    assert seen == ["skip", "theme", "samples"]
    assert titles == ["samples", "steps", "training time, s"]


def test_focus_is_visible(browser, page):
    """What has the focus has an outline, the switch included, whose radio buttons are hidden behind their labels."""
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    label = "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
    browser.open(page, width=390, dark=False)

    outlines = []
    for _ in range(3):
        browser.press("Tab")
        outlines.append(browser.value(label if len(outlines) == 2 else outline))

    assert outlines == ["solid", "solid", "solid"]


def test_paper_is_light_and_has_every_table_open(browser, page):
    """Printing from the dark theme gives light figures and the numbers, and leaves the screen as it was."""
    browser.open(page, width=1440, dark=True)

    browser.value("window.dispatchEvent(new Event('beforeprint'))")
    printed = browser.value(
        "[document.documentElement.dataset.theme, document.querySelectorAll('details[open]').length]"
    )
    browser.value("window.dispatchEvent(new Event('afterprint'))")
    after = browser.value(
        "[document.documentElement.dataset.theme ?? null, document.querySelectorAll('details[open]').length]"
    )

    assert printed[0] == "light"
    assert printed[1] >= 4
    assert after == [None, 0]
