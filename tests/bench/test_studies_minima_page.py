"""The page of the minima study: what it says follows from the records, and every doubt in them is on it."""

import math

import pytest
from bench.studies import minima, page_minima
from bench.studies.contrasts import HIGHER, LOWER, NO_MINIMUM_ABOVE, OPEN, Contrast, minima_of
from bench.studies.minima import TITLES
from bench.studies.pages import as_svg
from bench.studies.readings import AWARE, GRADIENT, LOSS, PLAIN, WITH_ERROR, at, barrier, curve, density

from tests.bench.invented import (
    LARGE,
    SMALL,
    THIRD,
    changed,
    full,
    measured,
    minima_records,
    record,
    sharpness,
)


def line_with(text, start):
    """The first line that starts so."""
    return next(line for line in text.splitlines() if line.startswith(start))


def cells_of(line):
    """A table row's cells."""
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("kind", ["sharpness", "interpolation"])
def test_every_reading_finds_its_number_in_a_full_result(kind):
    """Paths are those of the real type: each reading, error, flag and curve is there, so none is silently missing."""
    one = measured("any", 0, kind, full())

    missing = [reading.title for reading in (*PLAIN, *AWARE, LOSS, GRADIENT) if reading.value(one) is None]
    flags = [at(one, reading.flag) for reading in WITH_ERROR]
    errors = [reading.error_of(one) for reading in WITH_ERROR]

    assert missing == []
    assert flags == [False, True, True, True]
    assert errors == [0.004, 0.001, 2.5, None]
    assert [reading.unconverged(one) for reading in WITH_ERROR] == [True, False, False, False]
    assert density(one) == ([0.0, 1.0], [1.0, 0.1])
    assert curve(one) == (([-1.0, 0.0, 1.0], [1.0, 0.2, 1.0]) if kind == "sharpness" else ([0.0, 1.0], [0.2, 0.3]))
    assert barrier(one) == 0.75


def test_the_minima_page_sets_plain_measures_beside_aware_ones():
    """Both tables are there, medians with range and n; a setting without records is not run and not measured."""
    text = page_minima.render(minima_records()).text

    assert "| largest eigenvalue | 10.5 (10 to 11), n = 2 | 40.5 (40 to 41), n = 2 | not measured |" in text
    assert "weights' sizes | 4.5 (4 to 5), n = 2 | 2.5 (2 to 3), n = 2 | not measured |" in text
    assert f"| {TITLES[SMALL]} | 100 | 92.05 (92.00 to 92.10), n = 2 | 0.1 (0.1 to 0.1), n = 2 |" in text
    assert f"| {TITLES[THIRD]} | not run | not run |" in text
    assert f"| {TITLES[SMALL]} to {TITLES[LARGE]} | 1 (0.5 to 1.5), n = 2 |" in text


def test_the_minima_page_states_what_was_measured_from_the_records():
    """Batch norm, chunk, warm-up, percent, seeds and how much of the plan is there come from records and settings."""
    records = minima_records()
    records[0]["training"]["used"] = {"lr": 0.05, "warmup_steps": 200}

    text = page_minima.render(records).text

    assert "in chunks of 200, fp32; batch norm: each chunk by its own statistics" in text
    assert f"- batch {TITLES[SMALL]}: rate 0.05; warm-up of 200 steps; seeds 0, 1: `paceline train" in text
    assert f"- batch {TITLES[THIRD]}: not run: `paceline train" in text
    assert "| Keskar's sharpness, box of 1e-3, % |" in text
    planned = len(minima.cells(range(minima.SEEDS)))
    assert f"10 of {planned} planned cells are measured ({minima.SEEDS} seeds a setting)" in text
    assert "with 0 to 2 seed(s) a setting" in text


def test_every_flag_of_doubt_is_counted_and_every_error_shown():
    """1, 2, 3 and 4 of 4 measurements have not converged; residuals and standard errors stand in a table."""
    records = minima_records()
    sharp = [one for one in records if one["kind"] == "sharpness"]
    for count, reading in enumerate(WITH_ERROR, start=1):
        for place, one in enumerate(sharp):
            changed(one, reading.flag, place >= count)

    text = page_minima.render(records).text

    assert (
        "Not converged: largest eigenvalue in 1 of 4; largest eigenvalue, weighted with the weights' sizes in 2 of 4; "
        "trace in 3 of 4; trace, weighted with the squared weights in 4 of 4."
    ) in text
    first, *_, last = [line for line in text.splitlines() if ", seed " in line and line.startswith("| ")]
    assert cells_of(first)[1:] == [
        "10 ± 0.004, not converged",
        "4 ± 0.001, not converged",
        "100 ± 2.5, not converged",
        "17, error not stated, not converged",
    ]
    assert cells_of(last)[1:3] == ["41 ± 0.004", "3 ± 0.001"]


def test_a_minima_page_whose_flags_are_all_well_says_so():
    """No doubt is printed where none is recorded."""
    records = minima_records()
    for one in records:
        if one["kind"] == "sharpness":
            changed(one, ("eigenvalues", "converged"), True)

    text = page_minima.render(records).text

    assert "None of them is said not to have converged." in text
    assert ", not converged |" not in text


def test_the_dispute_gives_ratios_directions_and_whether_two_forms_agree():
    """40/10 and 41/11, 2/4 and 3/5: plain sharper, weighted flatter, so they disagree; adaptive SAM falls both ways."""
    text = page_minima.render(minima_records()).text
    table = text[text.index(f"### Batch {TITLES[LARGE]}, against batch {TITLES[SMALL]}") :]

    found = {reading.title: cells_of(line_with(table, f"| {reading.title} |"))[1:] for reading in (*PLAIN, *AWARE)}

    assert found == {
        PLAIN[0].title: ["3.86 (3.73 to 4), n = 2", "higher for every seed", "disagrees", "yes", "yes"],
        AWARE[0].title: ["0.55 (0.5 to 0.6), n = 2", "lower for every seed", "disagrees", "no", "no"],
        PLAIN[1].title: ["1.5 (1.5 to 1.5), n = 2", "higher for every seed", "agrees", "yes", "yes"],
        AWARE[1].title: ["2 (2 to 2), n = 2", "higher for every seed", "agrees", "yes", "yes"],
        PLAIN[2].title: ["2 (2 to 2), n = 2", "higher for every seed", "open", "yes", "yes"],
        AWARE[2].title: ["1 (0.5 to 1.5), n = 2", "open", "open", "open", "open"],
        PLAIN[3].title: ["2 (2 to 2), n = 2", "higher for every seed", "has none", "yes", "yes"],
    }
    assert (
        "agree in direction for trace; disagree for largest eigenvalue, and there the plain one may be about the size "
        "of the weights; leave it open for SAM sharpness, radius 0.05."
    ) in text
    assert "fall on one side with a chance of up to 0.5." in text


@pytest.mark.parametrize(
    ("accuracy", "words", "counts"),
    [
        (0.915, "lower for every seed, -0.55 (-0.60 to -0.50) points, n = 2", (5, 1, 1)),
        (0.93, "higher for every seed, +0.95 (+0.90 to +1.00) points, n = 2", (1, 5, 1)),
        (0.9205, "open, +0.00 (-0.05 to +0.05) points, n = 2", (0, 0, 7)),
    ],
)
def test_what_the_page_says_of_accuracy_follows_from_the_records(accuracy, words, counts):
    """The same curvature with another accuracy gives another sentence; where seeds fall both ways, it is open."""
    text = page_minima.render(minima_records(accuracy)).text

    assert f"- Test accuracy: {words}." in text
    assert (
        "Of 7 measures, both forms counted, {} say that the sharper minimum is the one less accurate, {} that it is "
        "the one more accurate, and {} leave it open."
    ).format(*counts) in text
    assert (
        "5 say that the sharper minimum is the one of higher training loss, 1 that it is the one of lower training "
        "loss, and 1 leave it open."
    ) in text
    assert "- Training loss on the 2,000 images: higher for every seed, ratio 2 (2 to 2), n = 2." in text


def test_a_difference_within_the_stated_errors_has_no_direction():
    """A trace of 104 against 100 with standard errors of 2.5 each (twice both: 10) is open, though both seeds agree."""
    records = minima_records()
    for one in records:
        if one["setting"] == f"{LARGE}-sharpness":
            changed(one, ("trace", "value"), 104.0)

    text = page_minima.render(records).text

    row = cells_of(line_with(text[text.index("### Batch") :], f"| {PLAIN[1].title} |"))
    assert row[1:4] == ["1.04 (1.04 to 1.04), n = 2", "open", "open"]


@pytest.mark.parametrize(
    ("pairs", "direction", "text"),
    [
        (((1.0, 2.0, 0.5), (1.0, 3.0, 0.5)), HIGHER, "2.5 (2 to 3), n = 2"),
        (((2.0, 1.0, 0.5),), LOWER, "0.5, n = 1"),
        (((1.0, 2.0, 1.0),), OPEN, "2, n = 1"),
        (((-1.0, 2.0, 0.0), (1.0, 2.0, 0.0)), HIGHER, "2, n = 1; no ratio for 1 of 2, not above 0"),
        (((-1.0, 2.0, 0.0),), HIGHER, "no ratio for 1 of 1, not above 0"),
        ((), OPEN, "not measured"),
    ],
)
def test_a_contrast_has_a_direction_only_where_every_seed_shows_it(pairs, direction, text):
    """A number that is not above 0 has no ratio, and that is said; nothing measured has no direction."""
    found = Contrast(pairs)

    assert (found.direction, found.ratio_text) == (direction, text)


def test_the_two_measures_without_an_aware_form_are_named():
    """Keskar's number and the density have none, and nothing is claimed for certain of the others."""
    text = page_minima.render(minima_records()).text

    assert "Keskar's number and the density of eigenvalues have none." in text
    assert "every plain measure" not in text
    assert "the plain one is about" not in text
    for name in ("Keskar", "Dinh", "Hoffer", "Goyal", "Shallue"):
        assert f"*{name} et al." in text


def test_a_diverged_seed_is_counted_and_gives_no_number():
    """The first seed of the large batch diverged after 3 steps: steps and accuracy are the other's, and n says so."""
    records = [one for one in minima_records() if not (one["setting"].startswith(LARGE) and one["seed"] == 0)]
    records.append(record(LARGE, 0, [0.1], steps_each=3, end="diverged"))

    text = page_minima.render(records).text

    row = cells_of(line_with(text, f"| {TITLES[LARGE]} | 8 |"))
    assert row[2:4] == ["91.50, n = 1 (no interval); 1 diverged", "0.2, n = 1"]
    assert row[-1] == "1 of 2"
    assert f"left out of everything below: {TITLES[LARGE]}, seed 0: diverged." in text
    assert "| largest eigenvalue | 10.5 (10 to 11), n = 2 | 41, n = 1 | not measured |" in text
    assert f"| {TITLES[SMALL]} to {TITLES[LARGE]} | 1.5, n = 1 |" in text
    assert "With one seed every difference has a direction" in text


def test_a_run_that_learned_nothing_is_no_minimum_and_is_compared_with_nothing():
    """A training loss of 2.3 is above ln(10)/2: the run is in the first table, and in no comparison; 1.15 is."""
    ended = [record(THIRD, 0, [0.1]), sharpness(THIRD, 0, loss=2.3)]
    nearly = [record(THIRD, 0, [0.6]), sharpness(THIRD, 0, loss=1.15)]

    text = page_minima.render([*minima_records(), *ended]).text

    assert f"{TITLES[THIRD]}, seed 0: a training loss of 2.30." in text
    assert line_with(text, f"| {TITLES[THIRD]} | 100 |").endswith("| 0 of 1 |")
    assert "### Batch " + TITLES[THIRD] in text
    assert "Nothing to compare: no seed has a measured minimum of both." in text
    assert math.log(10) / 2 == pytest.approx(NO_MINIMUM_ABOVE)
    assert minima_of(ended) == []
    assert minima_of(nearly) == nearly


def test_the_minima_page_leaves_out_what_no_record_has():
    """Without densities, slices and interpolations there are no such figures."""
    page = page_minima.render([one for one in minima_records() if one["kind"] == "train"])

    assert set(page.figures) == {"minima-sharpness.svg"}
    assert "barrier in loss" not in page.text
    assert "batch norm: not recorded" in page.text


def test_the_figures_count_the_curves_that_they_draw():
    """A density that one seed lacks is not counted in the legend of the densities."""
    records = minima_records()
    for one in records:
        if one["kind"] == "sharpness" and one["seed"] == 1:
            one["result"]["density"] = None

    page = page_minima.render(records)

    assert f"{TITLES[SMALL]} (n = 1)" in as_svg(page.figures["minima-density.svg"]).decode()
    assert f"{TITLES[SMALL]} (n = 2)" in as_svg(page.figures["minima-slices.svg"]).decode()
