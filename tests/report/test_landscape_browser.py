"""The landscape page as a browser sees it: the surface turns, nothing complains, without WebGL the contour stands."""

from __future__ import annotations

import math

import pytest

from paceline.report.landscape.landscape_page import write_landscape_page
from paceline.report.landscape.measurement import load_landscape
from tests.report import browser as browsers
from tests.report import landscapes
from tests.report.test_page import EVIL

pytestmark = [
    pytest.mark.skipif(browsers.chromium() is None, reason="no chromium on PATH"),
]

CAMERA = "document.getElementById('plot-surface')._fullLayout.scene._scene.getCamera().eye"


@pytest.fixture(scope="module")
def browser():
    """One browser for all tests of this module."""
    with browsers.Browser() as one:
        yield one


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pages: a path on its surface, two measurements, and one whose names are hostile."""
    root = tmp_path_factory.mktemp("pages")
    one = load_landscape(landscapes.write(root / "one", *landscapes.everything("pca")))
    two = load_landscape(landscapes.write(root / "two", *landscapes.everything()))
    result, arrays = landscapes.everything()
    arrays[f"surface_{EVIL}"] = arrays["surface_loss"]
    arrays["surface_loss"][0, 0] = float("nan")
    evil = load_landscape(landscapes.write(root / "evil", result, arrays, landscapes.info(name=EVIL)))
    write_landscape_page([one], root / "one.html")
    write_landscape_page([one, two], root / "both.html")
    write_landscape_page([evil], root / "evil.html")
    return root


def complaints(browser):
    """What the console said, but for what the graphics driver says about its own speed."""
    return [problem for problem in browser.problems if '"source": "rendering"' not in problem]


def test_the_page_is_quiet_and_fits_in_every_width_and_theme(browser, folder):
    """No console message, no request but the page itself, nothing wider than the window, every figure drawn."""
    page = folder / "one.html"
    for width, dark in ((390, False), (390, True), (1440, False), (1440, True)):
        browser.problems.clear()
        browser.requests.clear()

        browser.open(page, width=width, dark=dark)

        assert complaints(browser) == []
        assert set(browser.requests) <= {page.resolve().as_uri(), "about:blank"}
        assert browser.value("document.scrollingElement.scrollWidth") <= width
        assert browser.value("document.querySelectorAll('#plot-surface canvas').length") == 1
        assert browser.value("document.querySelectorAll('.plot .contour').length") == 1
        assert browser.value("document.querySelectorAll('.plot .scatterlayer .trace').length") >= 6
        assert browser.value("document.querySelectorAll('#plot-eigenvalues .point').length") == 2


def test_other_pages_are_quiet_too(browser, folder):
    """Several measurements on one page, and names that would be markup."""
    for name in ("both.html", "evil.html"):
        browser.problems.clear()

        browser.open(folder / name, width=1440, dark=False)

        assert complaints(browser) == []
        assert browser.value("document.querySelectorAll('img').length") == 0


def test_a_drag_turns_the_surface(browser, folder):
    """The camera moves around the middle at the same distance, and a change of theme keeps where it is."""
    browser.open(folder / "one.html", width=1440, dark=False)
    before = browser.value(CAMERA)

    browser.drag("#plot-surface", right=120, down=0)

    after = browser.value(CAMERA)
    assert abs(after["x"] - before["x"]) + abs(after["y"] - before["y"]) > 0.3
    distance = lambda eye: sum(eye[axis] ** 2 for axis in "xyz") ** 0.5  # noqa: E731  (used twice below)
    assert distance(after) == pytest.approx(distance(before), rel=0.05)
    browser.value("document.getElementById('theme').click()")
    kept = browser.value(CAMERA)
    assert kept == pytest.approx(after, abs=1e-6)


def test_the_surface_turns_from_the_keyboard(browser, folder):
    """Each button is reached by Tab and does what it says; Reset goes back to the first view."""
    browser.open(folder / "one.html", width=390, dark=False)
    first = browser.value(CAMERA)
    browser.value("document.querySelector('#turn button').focus()")

    views, names = [], []
    for _ in range(7):
        names.append(browser.value("document.activeElement.dataset.turn"))
        browser.press("Enter")
        views.append(browser.value(CAMERA))
        browser.press("Tab")

    left, right, up, down, near, far, reset = views
    assert names == ["left", "right", "up", "down", "in", "out", "reset"]
    assert left != pytest.approx(first, abs=0.1)
    assert right == pytest.approx(first, abs=1e-3)
    assert up["z"] > first["z"] + 0.1
    assert down == pytest.approx(first, abs=1e-3)
    assert near["x"] == pytest.approx(first["x"] / 1.15, abs=1e-3)
    assert far == pytest.approx(first, abs=1e-3)
    assert reset == pytest.approx(first, abs=1e-3)


def test_the_switches_change_what_is_shown_and_how(browser, folder):
    """Log and linear heights, loss and accuracy: surface, contour and path follow; accuracy has no log axis."""
    lowest = "Math.min(...document.getElementById('{}').data[0].z.flat())"
    choose = "document.querySelector('input[value={}]').click()"
    browser.open(folder / "one.html", width=1440, dark=False)

    seen = []
    for value in ("log", "linear", "accuracy"):
        browser.value(choose.format(value))
        seen.append([browser.value(lowest.format(figure)) for figure in ("plot-surface", "plot-contour")])

    table = landscapes.everything("pca")[1]
    low = table["surface_loss"].min()
    expected = [[math.log10(low)] * 2, [low] * 2, [table["surface_accuracy"].min()] * 2]
    for got, wanted in zip(seen, expected, strict=True):
        assert got == pytest.approx(wanted, rel=1e-4)
    assert browser.value("getComputedStyle(document.getElementById('scale')).display") == "none"


def test_without_webgl_the_contour_shows_and_a_sentence_stands_for_the_surface(folder):
    """No complaint, no empty figure: the contour has its numbers, and the page says why there is no surface."""
    with browsers.Browser(browsers.WITHOUT_WEBGL) as browser:
        browser.open(folder / "one.html", width=390, dark=False)
        shown = "getComputedStyle(document.getElementById('{}')).display !== 'none'"

        visible = {name: browser.value(shown.format(name)) for name in ("plot-surface", "turn", "no-webgl")}

        assert visible == {"plot-surface": False, "turn": False, "no-webgl": True}
        assert browser.value("document.querySelectorAll('#plot-contour .contour').length") == 1
        assert complaints(browser) == []
