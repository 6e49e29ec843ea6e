"""The page and pictures of a measurement: well-formed, complete, honest about what did not converge."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import msgspec
import numpy as np
import pytest

from paceline.records.errors import PacelineError
from paceline.records.landscape import arrays_path
from paceline.records.rundir import RunDir
from paceline.report.landscape.landscape_page import names_of, render_landscape, write_landscape
from paceline.report.landscape.measurement import load_landscape
from paceline.report.landscape.quantities import headline, quantities, significant
from paceline.report.landscape.surface import height
from paceline.report.landscape.tables import side_by_side
from tests.report import landscapes
from tests.report.test_page import EVIL, Page

MEASURES = ("surface", "trajectory", "line", "interpolation", "eigenvalues", "trace", "density", "keskar", "sam")


def page_of(*paths):
    """The page of these run directories, as HTML."""
    runs = [load_landscape(path) for path in paths]
    return render_landscape(runs, names_of(runs))


@pytest.fixture
def full(tmp_path):
    """A measurement of everything over a random plane."""
    return landscapes.write(tmp_path / "full", *landscapes.everything())


def test_pages_of_every_kind_of_measurement_are_well_formed(tmp_path):
    """Tags are balanced and ids unique, whichever measures were taken, for one measurement and for two."""
    paths = {measure: landscapes.write(tmp_path / measure, *landscapes.only(measure)) for measure in MEASURES}
    paths["none"] = landscapes.write(tmp_path / "none", landscapes.bare(), {})
    paths["path"] = landscapes.write(tmp_path / "path", *landscapes.everything("pca"))

    pages = {name: Page(page_of(path)) for name, path in paths.items()}
    pages["all"] = Page(page_of(*paths.values()))

    for name, page in pages.items():
        assert page.faults == [], name
        assert len(page.ids) == len(set(page.ids)), name
        labels = {attrs["aria-labelledby"] for _, attrs in page.attributes if "aria-labelledby" in attrs}
        assert labels <= set(page.ids), name


def test_the_page_asks_for_nothing_and_runs_only_its_own_scripts(full):
    """No address outside the page, and a policy that names the hash of each script in it."""
    html = page_of(full)

    page = Page(html)

    policy = next(a["content"] for _, a in page.attributes if a.get("http-equiv") == "Content-Security-Policy")
    kinds = [attrs.get("type") for tag, attrs in page.attributes if tag == "script"]
    running = [text for text, kind in zip(page.scripts, kinds, strict=True) if kind is None]
    hashes = {f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in running}
    assert len(running) == 2
    assert set(re.findall(r"'(sha256-[^']+)'", policy)) == hashes
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    assert "url(" not in html[html.index("<style>") : html.index("</style>")]


def test_all_numbers_warnings_and_the_treatment_of_batch_norm_are_in_the_page(full):
    """What the card says, the page says: every number with its error, and what must be known to read it."""
    run = load_landscape(full)

    text = Page(page_of(full)).text

    rows = quantities(run.result)
    said = [part for row in rows for part in (row.label, row.value, row.detail)]
    said += [headline(run.result), landscapes.WARNING, "Batch norm: the model has no batch norm."]
    assert len(rows) == 16
    assert [one for one in said if one not in text] == []


def test_what_did_not_converge_is_said_with_its_residual(full):
    """In the row of that eigenvalue, beside the residual; a number that did converge has no such words."""
    rows = {row.key: row for row in quantities(load_landscape(full).result)}

    text = Page(page_of(full)).text

    note = "not converged: 1 of 2 eigenvalues converged in 30 steps; the largest residual is 0.25"
    assert (rows["eigenvalue 1"].detail, rows["eigenvalue 1"].sure) == ("residual 0.004; 30 products", True)
    assert (rows["eigenvalue 2"].detail, rows["eigenvalue 2"].sure) == (f"residual 0.25; {note}", False)
    assert rows["weighted eigenvalue"].sure
    assert f"2nd eigenvalue 4 residual 0.25; {note} changes" in text
    assert "Not all have converged" in text


@pytest.mark.parametrize("each", [[], [True, True]])
def test_eigenvalues_of_which_some_may_be_missing_are_all_marked(each):
    """Those that are there may not be the largest; nor is it known of each in an older record."""
    result, _ = landscapes.everything()
    eigenvalues = msgspec.structs.replace(result.eigenvalues, each_converged=each)

    rows = quantities(msgspec.structs.replace(result, eigenvalues=eigenvalues))

    marked = {row.key for row in rows if not row.sure}
    assert marked == {"eigenvalue 1", "eigenvalue 2"}


def test_keskars_number_is_in_percent(full):
    """And says so, wherever it is shown."""
    rows = {row.key: row.value for row in quantities(load_landscape(full).result)}

    assert (rows["keskar"], rows["keskar subspace"], rows["sam"]) == ("≥ 3.125 %", "≥ 0.5 %", "≥ 0.0125")


def test_plain_sharpness_is_marked_as_changing_and_weighted_forms_as_staying(full):
    """Each number of curvature says what a rescaling of layers does to it."""
    kept = {row.key: row.kept for row in quantities(load_landscape(full).result)}

    assert {key for key, value in kept.items() if value is True} == {
        "loss",
        "metric accuracy",
        "weighted eigenvalue",
        "weighted trace",
        "adaptive sam",
    }
    assert {"eigenvalue 1", "trace", "density", "keskar", "keskar subspace", "sam", "gradient"} <= {
        key for key, value in kept.items() if value is False
    }


def test_a_number_that_is_missing_is_said_to_be_and_never_invented(tmp_path):
    """Losses that are not finite, bounds that were not found and errors that are not known have words."""
    result, arrays = landscapes.everything()
    arrays["surface_loss"][0, 0] = np.nan
    result = msgspec.structs.replace(
        result,
        loss=None,
        surface=msgspec.structs.replace(result.surface, failed=1),
        interpolation=msgspec.structs.replace(result.interpolation, barrier=None, barrier_at=None, ends=[None, 0.3]),
        sam=msgspec.structs.replace(result.sam, value=None, starts=[None, None]),
    )
    path = landscapes.write(tmp_path / "holes", result, arrays)

    page = Page(page_of(path))

    assert not re.search(r"\b(nan|None|null)\b", page.text.replace(page.scripts[0], ""))
    assert "Left blank: 1 point without a finite loss." in page.text
    assert "barrier not finite losses of the two ends not a finite number and 0.3000" in page.text
    assert "standard error not known; 40 probes" in page.text
    assert json.loads(page.scripts[0])["surface"]["values"]["loss"][0][0] is None


def test_names_and_warnings_are_text_wherever_they_stand(tmp_path):
    """Markup in anything that comes from records is shown, never obeyed."""
    result, arrays = landscapes.everything("pca")
    arrays[f"surface_{EVIL}"] = arrays["surface_loss"]
    result = msgspec.structs.replace(
        result,
        target=EVIL,
        task=EVIL,
        batch_norm=EVIL,
        warnings=[EVIL],
        metrics={EVIL: 0.5},
        surface=msgspec.structs.replace(result.surface, directions=EVIL),
        eigenvalues=msgspec.structs.replace(result.eigenvalues, note=EVIL),
    )
    about = landscapes.info(name=EVIL, command=["paceline", EVIL], versions={EVIL: EVIL})
    path = landscapes.write(tmp_path / "evil", result, arrays, about)

    for page in (Page(page_of(path)), Page(page_of(path, path))):
        assert page.faults == []
        assert not any(name.startswith("on") for _, attrs in page.attributes for name in attrs)
        assert not any(tag == "img" for tag, _ in page.attributes)
        assert len(page.scripts) == 3
        assert EVIL in page.text


def test_the_page_gets_the_arrays_as_they_are(full):
    """Surface, line and eigenvalues reach the script value by value, rows of the surface along y."""
    data = json.loads(Page(page_of(full)).scripts[0])

    x, y = np.linspace(-1, 1, 11), np.linspace(-1, 2, 9)
    expected = [[0.1 + a**2 + 4 * b**2 / 9 for a in x] for b in y]
    np.testing.assert_allclose(np.array(data["surface"]["values"]["loss"]), expected, rtol=1e-5)
    assert list(data["surface"]["values"]) == ["loss", "accuracy"]
    drawn = {figure["id"]: figure["series"] for figure in data["figures"]}
    (line,) = drawn["plot-line"]
    assert line["x"] == [-1, -0.5, 0, 0.5, 1]
    assert line["y"] == {"by": "column", "of": {"loss": [8.125, 2.125, 0.125, 2.125, 8.125]}}
    (bars,) = drawn["plot-eigenvalues"]
    assert (bars["y"], bars["low"], bars["high"]) == ([10, 4], [9.996, 3.75], [10.004, 4.25])
    assert data["path"] is None


def test_a_path_is_drawn_at_the_height_of_the_surface():
    """Between grid points it is bilinear, which is exact for a + b x + c y + d x y; outside there is nothing."""
    x, y = np.array([-3.0, -1, 0, 2]), np.array([0.0, 0.5, 2])
    plane = lambda a, b: 1 + 2 * a - 3 * b + 0.5 * a * b  # noqa: E731  (the reference, used twice)
    points = np.array([[-3, 0], [-2.25, 0.1], [0, 2], [2, 2], [1.5, 1.7], [2.1, 1], [0, -0.1]])

    result = height(x, y, plane(x[None, :], y[:, None]), points)

    np.testing.assert_allclose(result[:5], plane(points[:5, 0], points[:5, 1]), rtol=1e-12)
    assert np.isnan(result[5:]).all()


def test_the_path_lies_on_the_surface_of_its_own_plane_only(tmp_path):
    """With plane pca the path has heights and no figure of its own; beside a random plane it has one."""
    result, arrays = landscapes.everything("pca")
    own = landscapes.write(tmp_path / "own", result, arrays)
    surface = msgspec.structs.replace(result.surface, plane="random")
    other = landscapes.write(tmp_path / "other", msgspec.structs.replace(result, surface=surface), arrays)

    pages = {path: Page(page_of(path)) for path in (own, other)}

    path = json.loads(pages[own].scripts[0])["path"]
    heights = path["heights"]["loss"]
    assert path["trail"]["heights"]["loss"][::12] == heights
    assert path["trail"]["x"][6] == pytest.approx((path["x"][0] + path["x"][1]) / 2)
    # (0, 0) lies half-way between -0.2 and 0.2, and two thirds of the way from -0.25 to 0.125.
    assert heights[-1] == pytest.approx(0.1 + 0.2**2 + 4 / 9 * (0.25**2 / 3 + 2 * 0.125**2 / 3), rel=1e-5)
    assert "plot-path" not in pages[own].ids
    assert json.loads(pages[other].scripts[0])["path"]["heights"] == {}
    assert "plot-path" in pages[other].ids
    assert "95.0 %" in pages[own].text


def test_several_measurements_stand_side_by_side(tmp_path, full):
    """Numbers in one table, what one lacks is said, curves over each other, a shared warning once."""
    lesser = landscapes.write(tmp_path / "lesser", *landscapes.only("line"))
    runs = [load_landscape(full), load_landscape(lesser)]

    page = Page(page_of(full, lesser))

    table = side_by_side([quantities(run.result) for run in runs], ["full", "lesser"])
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["largest eigenvalue"] == ["10", "not measured"]
    assert cells["2nd eigenvalue"] == ["4 (not converged)", "not measured"]
    assert cells["loss"] == ["0.1250", "0.1250"]
    assert page.text.count(landscapes.WARNING) == 1
    data = json.loads(page.scripts[0])
    assert [one["name"] for figure in data["figures"] for one in figure["series"] if figure["id"] == "plot-line"] == [
        "full",
        "lesser",
    ]
    assert data["surface"] is None


def test_write_landscape_writes_page_and_pictures(tmp_path):
    """A PNG for each slice and for the density, named in the page; exactly what is returned was written."""
    path = landscapes.write(tmp_path / "full", *landscapes.everything("pca"))
    before = set(path.iterdir())

    written = write_landscape(path)

    assert [one.name for one in written] == [
        "report.html",
        "surface.png",
        "line.png",
        "interpolation.png",
        "density.png",
    ]
    assert set(path.iterdir()) - before == set(written)
    assert all(one.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for one in written[1:])
    assert all(str(one) in Page(written[0].read_text()).text for one in written[1:])


@pytest.mark.parametrize(
    ("measure", "pictures"),
    [("trajectory", ["path.png"]), ("eigenvalues", []), ("line", ["line.png"]), ("density", ["density.png"])],
)
def test_there_is_a_picture_only_of_what_was_measured(tmp_path, measure, pictures):
    """A path without its surface has a picture of its own; numbers have none."""
    path = landscapes.write(tmp_path / measure, *landscapes.only(measure))

    written = write_landscape(path)

    assert [one.name for one in written] == ["report.html", *pictures]


def test_surfaces_with_holes_or_losses_below_zero_have_pictures(tmp_path):
    """Neither a point without a finite loss nor a loss that has no logarithm stops the drawing."""
    result, arrays = landscapes.only("surface")
    arrays["surface_loss"] = 100 * arrays["surface_loss"] - 11
    arrays["surface_loss"][2, 3] = np.nan
    path = landscapes.write(tmp_path / "low", result, arrays)

    written = write_landscape(path)

    assert [one.name for one in written] == ["report.html", "surface.png"]
    assert 'name="scale"' not in written[0].read_text()


def test_a_name_with_dollars_is_no_mathematics(tmp_path):
    """Titles of pictures take names as they are."""
    result, arrays = landscapes.only("line")
    path = landscapes.write(tmp_path / "dollar", msgspec.structs.replace(result, task="a$\\frac{$b"), arrays)

    written = write_landscape(path)

    assert written[1].name == "line.png"


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda run: arrays_path(run).unlink(), "there is no such file"),
        (lambda run: arrays_path(run).write_bytes(b"PK\x03\x04torn"), "cannot be read"),
        (lambda run: (run.path / "result.json").unlink(), "has no result yet"),
        (lambda run: (run.path / "result.json").write_text('{"schema": 1}'), "is damaged"),
        (lambda run: (run.path / "result.json").write_text('{"schema": 2}'), "newer Paceline"),
    ],
)
def test_missing_and_damaged_records_are_one_message(full, break_it, said):
    """Nothing is written then."""
    break_it(RunDir(full))

    with pytest.raises(PacelineError) as caught:
        write_landscape(full)

    assert said in str(caught.value)
    assert not (full / "report.html").exists()


def test_a_damaged_byte_anywhere_in_the_arrays_is_one_message_or_none(tmp_path):
    """Each in turn is turned over: in names, sizes, packed numbers and check sums; what can be read is read."""
    result, arrays = landscapes.only("line")
    path = landscapes.write(tmp_path / "bits", result, arrays)
    file = arrays_path(RunDir(path))
    whole = file.read_bytes()
    said = []

    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        said.append(_message_of(path))

    refused = [message for message in said if message]
    assert len(refused) > len(whole) / 2
    assert all("landscape.npz" in message for message in refused)


def _message_of(path):
    """What loading a measurement says; nothing when it can be read."""
    try:
        load_landscape(path)
    except PacelineError as error:
        return error.what
    return ""


def test_arrays_that_do_not_belong_together_are_refused(tmp_path):
    """A surface that is not as large as its axes is damage, named."""
    result, arrays = landscapes.everything()
    arrays["surface_loss"] = arrays["surface_loss"].T
    path = landscapes.write(tmp_path / "torn", result, arrays)

    with pytest.raises(PacelineError) as caught:
        load_landscape(path)

    assert caught.value.why == "surface_loss has the shape (11, 9), not (9, 11)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (12.3456, "12.35"),
        (1234.5, "1,234"),
        (123456.0, "123,456"),
        (-0.00097656, "-0.0009766"),
        (3.2e-7, "3.2e-07"),
        (2.5e9, "2.5e+09"),
        (None, "not finite"),
        (float("nan"), "not finite"),
    ],
)
def test_numbers_have_four_significant_digits(value, shown):
    """Fewer where the rest are zeros; thousands are separated; very large and very small ones have exponents."""
    assert significant(value) == shown
