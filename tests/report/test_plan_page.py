"""Pages, pictures and facts of plans: complete, and honest about what is measured, predicted, and without an end."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re

import msgspec
import pytest

from paceline.plan import collectives
from paceline.plan import step_time as planner
from paceline.records.errors import PacelineError
from paceline.records.plan_results import Evidence, estimate, read_plan
from paceline.records.rundir import RunDir
from paceline.report.page.figures import payload
from paceline.report.plan.data_section import FAR as FAR_DATA
from paceline.report.plan.numbers import about, interval_of, step_time, value_of
from paceline.report.plan.plan_page import load_plan, render_plan, write_plan_page
from paceline.report.plan.sections import content
from paceline.report.plan.speed_figures import ring_s
from paceline.report.plan.speed_section import FAR, measured_efficiency, mended_at
from paceline.stats import power_law
from tests.report import plans
from tests.report.test_page import EVIL, Page

replace = msgspec.structs.replace
NOTHING = estimate(math.inf, math.inf, math.inf)


def page_of(path):
    """The page of a plan, read."""
    return Page(render_plan(load_plan(path)))


def figures_of(result):
    """What is drawn, by the place in the page."""
    return {figure.id: payload(figure) for figure in content(result).figures}


def named(figure, name):
    """The series of that name, which there is exactly one of."""
    (found,) = [one for one in figure["series"] if one["name"] == name]
    return found


def bare(kind):
    """A result with as little in it as there can be."""
    none = Evidence(runs=[], held_out=[], confidence=0.9, notes=[])
    changes = {
        "speed": {"measured": [], "rows": [], "curve": [], "mending": [], "warnings": [], "evidence": none},
        "batch": {
            "target": None,
            "critical": None,
            "least_steps": None,
            "least_samples": None,
            "worst_error": None,
            "points": [],
            "noise": [],
            "table": [],
            "recommendation": None,
            "branches": [],
            "warnings": [],
            "evidence": none,
        },
        "data": {"points": [], "rows": [], "needed": [], "forward_flop": None, "warnings": [], "evidence": none},
        "trends": {"records": [], "notes": []},
    }
    return replace(plans.result(kind), **changes[kind])


@pytest.mark.parametrize("kind", plans.KINDS)
@pytest.mark.parametrize("build", [plans.result, bare])
def test_pages_are_well_formed_and_ask_for_nothing(tmp_path, kind, build):
    """Full or nearly empty: tags are balanced, ids unique, and only the page's own two scripts may run."""
    html = render_plan(load_plan(plans.write(tmp_path / "plan", kind, build(kind))))

    page = Page(html)

    assert page.faults == []
    assert len(page.ids) == len(set(page.ids))
    labels = {attrs["aria-labelledby"] for _, attrs in page.attributes if "aria-labelledby" in attrs}
    assert labels <= set(page.ids)
    policy = next(a["content"] for _, a in page.attributes if a.get("http-equiv") == "Content-Security-Policy")
    kinds = [attrs.get("type") for tag, attrs in page.attributes if tag == "script"]
    running = [text for text, kind in zip(page.scripts, kinds, strict=True) if kind is None]
    hashes = {f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in running}
    assert set(re.findall(r"'(sha256-[^']+)'", policy)) == hashes
    assert policy.startswith("default-src 'none'; ")
    assert not re.search(r"\b(nan|None|null|inf)\b", page.text.replace(page.scripts[0], ""))


@pytest.mark.parametrize("kind", plans.KINDS)
def test_all_numbers_warnings_and_evidence_are_in_the_page(tmp_path, kind):
    """Every fact, every cell of the answer and of each figure's table, runs, held-out points, notes; warnings first."""
    path = plans.write(tmp_path / "plan", kind)
    result = load_plan(path).result

    text = page_of(path).text

    said = [part for row in content(result).quantities for part in (row.label, row.value, row.detail)]
    said += [content(result).headline, *getattr(result, "warnings", []), f"paceline plan {kind} runs/one"]
    tables = [figure.table for figure in content(result).figures]
    tables += [*content(result).answers, *(figure.more for figure in content(result).figures if figure.more)]
    said += [cell for one in tables for row in [one.columns, *one.rows] for cell in row]
    if kind == "batch":
        advice = result.recommendation
        said += [advice.command, advice.rule, "2 epochs", *advice.because, *advice.unless]
    if kind == "trends":
        said += result.notes
    else:
        said += result.evidence.runs + result.evidence.notes
        said += [row.what for row in result.evidence.held_out]
        first = text.index(result.warnings[0])
        assert first < text.index(content(result).quantities[0].label)
    assert [one for one in said if " ".join(one.split()) not in text] == []


@pytest.mark.parametrize("kind", plans.KINDS)
def test_every_figure_has_a_place_a_legend_and_its_numbers(tmp_path, kind):
    """What the script draws has an element of that id, a legend that names each series, and a table with rows."""
    path = plans.write(tmp_path / "plan", kind)

    page = page_of(path)

    drawn = json.loads(page.scripts[0])["figures"]
    figures = content(load_plan(path).result).figures
    assert [one["id"] for one in drawn] == [figure.id for figure in figures]
    assert {figure.id for figure in figures} <= set(page.ids)
    for figure in figures:
        assert {entry.name for entry in figure.legend} == {one.name for one in figure.series}
        assert figure.table.rows, figure.id
        assert all(len(row) == len(figure.table.columns) for row in figure.table.rows), figure.id


@pytest.mark.parametrize("kind", plans.KINDS)
def test_names_are_text_wherever_they_stand(tmp_path, kind):
    """Markup in whatever comes from records is shown, never obeyed."""
    about_it = plans.info(kind, name=EVIL, command=["paceline", EVIL], versions={EVIL: EVIL})
    result = plans.result(kind)
    if kind == "trends":
        result = replace(result, records=[replace(result.records[0], who=EVIL, source=EVIL)], notes=[EVIL])
    else:
        evil = Evidence(runs=[EVIL], held_out=result.evidence.held_out, confidence=0.9, notes=[EVIL])
        result = replace(result, task=EVIL, warnings=[EVIL], evidence=evil)

    page = page_of(plans.write(tmp_path / "plan", kind, result, about_it))

    assert page.faults == []
    assert not any(name.startswith("on") for _, attrs in page.attributes for name in attrs)
    assert not any(tag == "img" for tag, _ in page.attributes)
    assert len(page.scripts) == 3
    assert EVIL in page.text


def test_what_has_no_end_and_what_is_out_of_reach_is_said_in_those_words():
    """A null end is `no end`, a null value `out of reach`, an absent estimate `not known`; none becomes a number."""
    rows = {row.label: row for row in content(plans.data()).quantities}

    assert rows["predicted samples for error 0.07"].detail == "90 % interval 61,000 to no end"
    assert rows["predicted samples for error 0.04"].value == "out of reach"
    assert not rows["predicted samples for error 0.04"].sure
    assert interval_of(estimate(5.0, -math.inf, 7.0)) == "no end to 7"
    assert interval_of(NOTHING) == "no end"
    assert value_of(None) == "not known"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0123456, "0.0123"),
        (1.25, "1.25"),
        (999.6, "1,000"),
        (1252.5, "1,250"),
        (183_427.0, "183,000"),
        (12_345_678.0, "12.3 million"),
        (4.13e18, "4.13e+18"),
        (0.0, "0"),
        (None, "out of reach"),
        (math.inf, "out of reach"),
    ],
)
def test_predictions_have_no_more_digits_than_they_are_worth(value, shown):
    """Three significant digits, with words for millions and powers of ten for what is larger still."""
    assert about(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.00004, "40 µs"), (0.0421, "42.1 ms"), (0.9999, "1 s"), (1.2345, "1.23 s"), (187.0, "3 min 07 s"), (0, "0")],
)
def test_times_of_steps_have_units_that_fit(seconds, shown):
    """Three significant digits from microseconds on; minutes as everywhere else."""
    assert step_time(seconds) == shown


def test_limits_are_those_of_the_planner():
    """What the page calls far is what the planner warns of."""
    assert FAR == planner.FAR
    assert FAR_DATA == power_law.FAR


def test_the_network_line_is_the_planners_ring():
    """At sizes on both sides of where a machine's memory is the bottleneck, and without such a bottleneck."""
    shared = plans.speed().network
    apart = replace(shared, shared_bytes_per_s=None)

    for facts_of, together in ((shared, 2e9), (apart, math.inf)):
        link = collectives.Link(plans.LATENCY, plans.BANDWIDTH, together)
        for ranks in (2, 3, 8):
            for size in (1e3, 1e8):
                assert ring_s(facts_of, ranks, size) == pytest.approx(collectives.ring(ranks, size, link), rel=1e-12)


def test_efficiency_is_solid_within_the_runs_and_dashed_beyond():
    """The two stretches meet at the most workers that were measured, and 16 times those are marked."""
    figure = figures_of(plans.speed())["plot-efficiency"]

    within, beyond = named(figure, "weak scaling, predicted"), named(figure, "weak scaling, extrapolation")
    assert (within["x"], within["dash"]) == ([1, 2, 4], "")
    assert (beyond["x"][0], beyond["x"][-1], bool(beyond["dash"])) == (4, 4096, True)
    assert within["y"][-1] == beyond["y"][0]
    assert [(mark["at"], mark["label"]) for mark in figure["marks"]] == [(64, "16 × the most measured")]


def test_measured_efficiency_comes_from_measured_runs_alone():
    """By hand: 64 samples each take 12.8 + 2 ms alone (2 % slower than that as measured), so many on two and four."""
    result = plans.speed()

    weak = measured_efficiency(result, "weak")

    alone = next(one.step_s for one in result.measured if (one.workers, one.micro) == (1, 64))
    by_hand = [(one.workers, alone / one.step_s) for one in result.measured if one.micro == 64 and one.workers > 1]
    assert [(one.workers, value) for one, value in weak] == [(n, pytest.approx(value)) for n, value in by_hand]
    assert [n for n, _ in by_hand] == [2, 4]
    points = named(figures_of(result)["plot-efficiency"], "weak scaling, measured")
    assert points["kind"] == "points"
    assert points["y"] == pytest.approx([value for _, value in by_hand], rel=1e-5)


def test_efficiency_to_the_target_is_drawn_where_it_differs():
    """Weak scaling grows the batch, so it has a line of its own; strong scaling keeps it, and no line without noise."""
    with_noise, without = figures_of(plans.speed()), figures_of(plans.speed(noise_scale=None))

    names = {one["name"] for one in with_noise["plot-efficiency"]["series"]}
    assert "weak scaling, to the target, predicted" in names
    assert "strong scaling, to the target, predicted" not in names
    line = named(with_noise["plot-efficiency"], "weak scaling, to the target, extrapolation")
    machine = named(with_noise["plot-efficiency"], "weak scaling, extrapolation")
    assert line["y"][-1] == pytest.approx(machine["y"][-1] * (4000 + 64) / (4000 + 64 * 4096), rel=1e-4)
    assert not any("to the target" in one["name"] for one in without["plot-efficiency"]["series"])


def test_parts_of_a_step_add_up_to_it():
    """Bars of one number of workers stack to the predicted step."""
    result = plans.speed()

    bars = figures_of(result)["plot-parts-strong"]

    sums = [sum(one["y"][at] for one in bars["series"]) for at in range(5)]
    expected = [row.step_s.value for row in result.rows if row.scaling == "strong"]
    assert sums == pytest.approx(expected, rel=1e-5)
    assert bars["series"][0]["x"] == ["1", "4", "16", "64", "256"]


def test_mending_says_at_which_setting_and_in_which_order():
    """What gives most stands first with the longest bar."""
    result = plans.speed()

    bars = content(result).bars

    assert mended_at(result).startswith("weak scaling, 8 workers, ")
    assert [(bar.name, bar.value) for bar in bars] == [
        ("no jitter between workers", "15.1 % more samples/s"),
        ("a network twice as fast", "12.0 % more samples/s"),
        ("no overhead of launching", "nothing"),
    ]
    assert [bar.width for bar in bars] == pytest.approx([1.0, 0.12 / 0.151, 0.0])


def test_the_critical_batch_has_twice_the_fewest_steps_and_samples():
    """Its point on the curve, and its interval as a stretch of the curve between the ends."""
    figure = figures_of(plans.batch())["plot-trade"]

    point = named(figure, "critical batch: 600")
    stretch = named(figure, "critical batch: 90 % interval 480 to 790")
    assert (point["x"], point["y"]) == ([2 * plans.LEAST_SAMPLES], [2 * plans.LEAST_STEPS])
    assert stretch["y"][0] == pytest.approx(400 + 240_000 / 480)
    assert stretch["x"][-1] == pytest.approx(240_000 + 400 * 790)
    assert [one["name"] for one in figure["series"] if one["kind"] == "points"][1:] == [
        f"measured, seed {seed}" for seed in (0, 1, 2)
    ]


def test_a_run_that_missed_the_target_is_named_and_not_drawn():
    """It is in the table as not reached, and in the note of the figure."""
    result = plans.batch()
    figure = next(one for one in content(result).figures if one.id == "plot-trade")

    drawn = [x for one in figure.series if one.name == "measured, seed 0" for x in one.x]

    assert len(drawn) == 5
    assert "Not drawn: 1 run that did not reach the target." in figure.note
    assert ["16,384", "0", "not reached", "not reached"] in [row[:4] for row in figure.table.rows]


def test_whiskers_without_an_end_run_to_the_edge():
    """A missing upper end lies above all numbers; windows beyond the data set stand at their lower end, open."""
    figure = figures_of(plans.batch())["plot-noise"]

    known, beyond = named(figure, "noise scale, measured"), named(figure, "at least the data set")
    assert known["high"][:2] == [pytest.approx(390), pytest.approx(1260)]
    assert known["high"][2] == beyond["high"][0] == 1.5 * 40_000
    assert (beyond["y"], beyond["hollow"]) == ([40_000], True)


def test_the_heat_table_says_time_and_efficiency_and_marks_the_recommendation(tmp_path):
    """Batches down, workers across; tint by time, from the fastest (0) to the slowest (1)."""
    result = plans.batch()

    heat = content(result).heat

    cells = dict(heat.rows)
    took = plans.steps(512) * plans.step_s(4, 128)
    assert list(heat.columns) == ["1 worker", "2 workers", "4 workers", "8 workers"]
    assert cells["512"][2].main == f"{took:.1f} s"
    assert [cell.chosen for cell in cells["512"]] == [False, False, True, False]
    away = {(head, at): cell.away for head, row in heat.rows for at, cell in enumerate(row)}
    assert min(away, key=away.get) == ("256", 3)
    assert sorted(away.values())[:: len(away) - 1] == [0.0, 1.0]
    alone, together = 64 / plans.step_s(1, 64), 512 / plans.step_s(4, 128)
    share = together / (4 * alone) * 64 * plans.steps(64) / (512 * plans.steps(512))
    assert cells["512"][2].more == f"{100 * share:.0f} % efficient"
    assert "recommended" in page_of(plans.write(tmp_path / "plan", "batch")).text


def test_without_times_the_answer_is_a_row_a_batch():
    """No heat table, no invented time; efficiency is then what a sample brings."""
    result = plans.batch(timed=False)

    shown = content(result).answer

    assert content(result).heat is None
    assert "numbers of workers make no difference here" in content(result).lead
    assert [row[0] for row in shown.rows] == [f"{size:,}" for size in plans.BATCHES]
    assert not any("s" in cell for row in shown.rows for cell in row)


def test_a_plan_from_noise_alone_claims_no_target():
    """Without runs to a target there is no curve, and steps are for the same progress."""
    result = replace(
        plans.batch(), target=None, metric="", critical=None, least_steps=None, least_samples=None, points=[]
    )

    figures = {figure.id: figure for figure in content(result).figures}

    assert content(result).headline == "no target given · from the noise of gradients alone, no run to a target"
    assert "plot-trade" not in figures
    assert figures["plot-steps"].y.title == "steps for the same progress"
    assert {row.label: row.value for row in content(result).quantities}["critical batch"] == "not known"
    assert "target" not in content(result).answer.caption
    assert {one.name for one in figures["plot-steps"].series} == {"bounds of the prediction", "predicted"}


def test_the_learning_curve_is_solid_within_the_runs_and_reaches_the_targets():
    """The law by hand at both ends; runs and the held-out prediction are points; a target out of reach has no point."""
    figure = figures_of(plans.data())["plot-learning"]

    fitted, beyond = named(figure, "fitted"), named(figure, "extrapolation")
    assert (fitted["x"][0], fitted["x"][-1], fitted["dash"]) == (1875, 15_000, "")
    assert fitted["y"][0] == pytest.approx(0.05 + 2.4 / 1875**0.4, rel=1e-5)
    assert (beyond["x"][0], beyond["x"][-1], bool(beyond["dash"])) == (15_000, 240_000, True)
    assert len(named(figure, "measured runs")["x"]) == 8
    held = named(figure, "predicted by a fit without that size")
    assert (held["x"], held["y"]) == ([15_000], [0.1044])
    needs = named(figure, "samples that a target needs, predicted")
    assert needs["x"] == [27_900, 157_000]
    assert needs["right"] == [39_000, 1.5 * 240_000]
    assert [mark["at"] for mark in figure["marks"] if mark["axis"] == "y"] == [0.09, 0.07, 0.04]


@pytest.mark.parametrize(("priced", "heading"), [(True, "Cost"), (False, "Computing")])
def test_the_figure_of_cost_shows_the_most_telling_number_that_is_known(priced, heading):
    """Money where a price was given, else operations; never called measured."""
    figure = next(one for one in content(plans.data(priced)).figures if one.id == "plot-cost")

    assert figure.heading == f"{heading} over training samples"
    assert all(series.name.startswith("computed") for series in figure.series)
    assert ("Cost" in figure.table.columns) == priced


def test_trends_are_published_and_have_sources(tmp_path):
    """Strong-scaling efficiency of the MLPerf series by hand, every source in the table, nothing called predicted."""
    result = plans.trends()

    figure = figures_of(result)["plot-efficiency"]

    assert named(figure, "MLPerf 3.0")["y"] == pytest.approx([1, 0.6319, 0.4134, 0.3801, 0.1643], abs=5e-5)
    assert [row[-1] for row in content(result).answer.rows] == [
        record.source for record in sorted(result.records, key=lambda one: (one.year, -one.minutes))
    ]
    text = page_of(plans.write(tmp_path / "plan", "trends")).text
    assert text.count("predicted") == 1
    assert "nothing here was measured or predicted by paceline" in text


@pytest.mark.parametrize("kind", plans.KINDS)
def test_measured_and_predicted_are_never_mixed_up(kind):
    """No series of a prediction is solid points, and none of what was measured is a line or dashed."""
    for figure in content(plans.result(kind)).figures:
        for series in figure.series:
            if series.name.startswith("measured") or series.name.endswith("measured"):
                assert (series.kind, series.dash, series.hollow) == ("points", "", False), series.name
            if "extrapolation" in series.name:
                assert series.dash, series.name
            if "predicted" in series.name and series.kind == "points":
                assert series.hollow, series.name


@pytest.mark.parametrize(
    ("kind", "pictures"),
    [
        ("speed", {"efficiency.png", "throughput.png"}),
        ("batch", {"steps-against-samples.png", "steps-over-batch.png", "noise-scale.png"}),
        ("data", {"learning-curve.png"}),
        ("trends", {"training-time-over-years.png", "training-time-over-devices.png"}),
    ],
)
def test_write_plan_page_writes_page_and_pictures(tmp_path, kind, pictures):
    """Exactly these, PNG, each named in the page; the records stay as they were."""
    path = plans.write(tmp_path / "plan", kind)
    before = {one.name: one.read_bytes() for one in path.iterdir()}

    written = write_plan_page(path)

    assert written == RunDir(path).report
    assert {one.name for one in path.iterdir()} == {*before, "report.html", *pictures}
    assert all((path / name).read_bytes() == was for name, was in before.items())
    assert all((path / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for name in pictures)
    text = Page(written.read_text()).text
    assert all(str(path / name) in text for name in pictures)


@pytest.mark.parametrize("kind", plans.KINDS)
def test_what_is_written_is_what_is_loaded(tmp_path, kind):
    """A plan comes back as it was, with its run.json."""
    path = plans.write(tmp_path / "plan", kind)

    loaded = load_plan(path)

    assert loaded.result == plans.result(kind) == read_plan(path)
    assert loaded.info.facts == {"kind": kind}


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda path: (path / "result.json").unlink(), "cannot read"),
        (lambda path: (path / "result.json").write_text("{"), "is damaged"),
        (lambda path: (path / "run.json").unlink(), "run.json"),
    ],
)
def test_missing_and_damaged_records_are_one_message(tmp_path, break_it, said):
    """Nothing is written then."""
    path = plans.write(tmp_path / "plan", "speed")
    break_it(path)

    with pytest.raises(PacelineError) as caught:
        write_plan_page(path)

    assert said in str(caught.value)
    assert not list(path.glob("*.html")) + list(path.glob("*.png"))


def test_a_run_of_another_verb_is_refused(tmp_path):
    """With its verb named."""
    path = plans.write(tmp_path / "plan", "speed", about=plans.info("speed", verb="train"))

    with pytest.raises(PacelineError, match="a run of paceline train, not of paceline plan"):
        load_plan(path)
