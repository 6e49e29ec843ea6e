"""Plan pages as a browser sees them: quiet, no requests, every width and theme, every figure drawn and readable."""

from __future__ import annotations

import msgspec
import pytest

from paceline.report.plan.plan_page import load_plan, write_page
from paceline.report.plan.sections import content
from tests.report import browser as browsers
from tests.report import plans
from tests.report.test_page import EVIL
from tests.report.test_plan_page import bare

pytestmark = [
    pytest.mark.skipif(browsers.chromium() is None, reason="no chromium on PATH"),
]

TICKS = "[...document.querySelectorAll('#{} .{}tick text')].map((one) => one.textContent)"

HEAT_COLOURS = """(() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const read = (value) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = value;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const styles = [...document.querySelectorAll(".heat td")].map((cell) => getComputedStyle(cell));
  return styles.map((one) => [one.backgroundColor, one.color].map(read));
})()"""
"""Ground and ink of each cell, as red, green and blue from 0 to 255."""
SUMS = "document.getElementById('{}').data.reduce((sum, one) => one.y.map((y, at) => y + (sum[at] ?? 0)), [])"
"""Heights of stacked bars."""


@pytest.fixture(scope="module")
def browser():
    """One browser for all tests of this module."""
    with browsers.Browser() as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each kind, full and nearly empty, and one whose names are hostile."""
    root = tmp_path_factory.mktemp("plans")
    evil = msgspec.structs.replace(
        plans.trends(), records=[msgspec.structs.replace(plans.trends().records[0], who=EVIL)]
    )
    results = {kind: plans.result(kind) for kind in plans.KINDS}
    results |= {f"bare-{kind}": bare(kind) for kind in plans.KINDS} | {"evil": evil}
    found = {}
    for name, result in results.items():
        kind = "trends" if name == "evil" else name.removeprefix("bare-")
        found[name] = root / f"{name}.html"
        write_page(load_plan(plans.write(root / name, kind, result)), found[name])
    return found


@pytest.mark.parametrize("kind", plans.KINDS)
def test_the_page_is_quiet_and_fits_in_every_width_and_theme(browser, pages, kind):
    """No console message, no request but the page itself, nothing wider than the window, every figure drawn."""
    figures = content(plans.result(kind)).figures
    for width, dark in ((390, False), (390, True), (1440, False), (1440, True)):
        browser.problems.clear()
        browser.requests.clear()

        browser.open(pages[kind], width=width, dark=dark)

        assert browser.problems == []
        assert set(browser.requests) <= {pages[kind].resolve().as_uri(), "about:blank"}
        assert browser.value("document.scrollingElement.scrollWidth") <= width
        for figure in figures:
            drawn = browser.value(f"document.querySelectorAll('#{figure.id} .trace').length")
            assert drawn >= len([one for one in figure.series if one.kind != "band"]), figure.id


@pytest.mark.parametrize("name", [*(f"bare-{kind}" for kind in plans.KINDS), "evil"])
def test_nearly_empty_and_hostile_pages_are_quiet_too(browser, pages, name):
    """No figure, or figures without points, raise nothing; names that would be markup are text in legend and label."""
    browser.problems.clear()

    browser.open(pages[name], width=1440, dark=False)

    assert browser.problems == []
    assert browser.value("document.querySelectorAll('img').length") == 0


def test_ticks_are_numbers_with_units(browser, pages):
    """Logarithmic axes have between three and eight ticks, written as people write them."""
    browser.open(pages["speed"], width=390, dark=False)
    speed = {place: browser.value(TICKS.format(*place)) for place in (("plot-fit", "x"), ("plot-network", "y"))}
    workers = browser.value(TICKS.format("plot-efficiency", "x"))
    browser.open(pages["trends"], width=390, dark=False)
    minutes = browser.value(TICKS.format("plot-years", "y"))

    assert workers == ["1", "8", "64", "512", "4,096"]
    assert all(tick.endswith(" ms") for tick in speed["plot-fit", "x"])
    assert {"100 µs", "1 ms", "10 ms"} <= set(speed["plot-network", "y"])
    assert {"1", "10", "100", "1,000"} <= set(minutes)
    assert all(3 <= len(ticks) <= 8 for ticks in (*speed.values(), workers, minutes))


def test_the_name_of_an_upright_line_keeps_clear_of_the_buttons(browser, pages):
    """On a phone the buttons of a figure always show, and nothing may lie under them."""
    browser.open(pages["speed"], width=390, dark=False)
    box = "document.querySelector('#plot-efficiency {}').getBoundingClientRect().toJSON()"

    label, buttons = browser.value(box.format(".annotation")), browser.value(box.format(".modebar-group"))

    assert label["top"] >= buttons["bottom"] - 1


def test_parts_of_a_step_can_be_shown_as_shares(browser, pages):
    """With the switch each stack becomes 100 %, in its own figure only."""
    browser.open(pages["speed"], width=1440, dark=False)
    browser.value("document.querySelector('input[name=plot-parts-strong-as][value=share]').click()")

    assert browser.value(SUMS.format("plot-parts-strong")) == pytest.approx([1.0] * 5)
    weak = [plans.step_s(workers, 64) for workers in (1, 4, 16, 64, 256)]
    assert browser.value(SUMS.format("plot-parts-weak")) == pytest.approx(weak, rel=1e-5)


def test_heat_cells_can_be_read_in_both_themes(browser, pages):
    """Ink on the darkest tint has a contrast of at least 4.5 to 1."""
    worst = []
    for dark in (False, True):
        browser.open(pages["batch"], width=1440, dark=dark)

        pairs = browser.value(HEAT_COLOURS)

        worst.append(min(contrast(*pair) for pair in pairs))
        assert len(pairs) == 24
        assert len({tuple(ground) for ground, _ in pairs}) > 10
    assert min(worst) >= 4.5


def contrast(one, other):
    """Of two colours, as WCAG 2.2 defines it."""
    luminances = sorted(luminance(colour) for colour in (one, other))
    return (luminances[1] + 0.05) / (luminances[0] + 0.05)


def luminance(colour):
    """Relative, of red, green and blue from 0 to 255."""
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
