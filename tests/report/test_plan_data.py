"""`paceline plan data` in words: what stayed out of the fit is not taken for what it rests on."""

from __future__ import annotations

import msgspec

from paceline.records.plan_results import CurvePoint, estimate
from paceline.report.plan.data_figures import figures
from paceline.report.plan.data_section import largest, quantities
from tests.report import plans

replace = msgspec.structs.replace


def test_sizes_that_were_left_out_of_the_fit_do_not_make_predictions_nearer():
    """Runs without an error and runs that diverged, on 60,000 samples: the fit still ends at 15,000, and 4 times that
    is as far as before."""
    whole = plans.data()
    points = [
        CurvePoint(run=f"runs/data-60000-{seed}", samples=60_000, seed=seed, error=error, steps=500)
        for seed, error in ((0, 0.0), (1, None))
    ]
    far = replace(whole.needed[0], samples=estimate(70_000, 60_000, 90_000))

    result = replace(whole, points=[*whole.points, *points], needed=[far])

    assert largest(result) == largest(whole) == 15_000
    assert not quantities(result)[0].sure


def test_without_a_table_the_runs_that_ended_say_how_far_the_fit_went():
    """And without runs there is nothing."""
    result = replace(plans.data(), rows=[])

    assert largest(result) == 15_000
    assert largest(replace(result, points=[point for point in result.points if point.error is None])) == 0


def test_a_run_without_an_error_has_no_place_on_a_logarithmic_axis_and_is_said_not_to():
    """Beside those that diverged; both stand in the table of runs."""
    whole = plans.data()
    extra = CurvePoint(run="runs/data-60000-0", samples=60_000, seed=0, error=0.0, steps=500)

    figure = figures(replace(whole, points=[*whole.points, extra]))[0]

    (measured,) = [one for one in figure.series if one.name == "measured runs"]
    assert len(measured.x) == 8
    assert "Not drawn: 1 run that diverged and 1 run without an error." in figure.note
    assert "runs/data-60000-0" in [row[-1] for row in figure.table.rows]
