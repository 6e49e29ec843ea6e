"""A plan as one HTML page: warnings, the numbers that answer, figures, and what all of it rests on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.records.plan_results import AnyPlan, BatchResult, DataResult, SpeedResult, result_path
from paceline.records.rundir import RunDir
from paceline.report import words
from paceline.report.page.run_tables import Table
from paceline.report.page.shell import Parts, render, write_html
from paceline.report.plan.batch_section import rows_of
from paceline.report.plan.content import Content, legend, payload
from paceline.report.plan.evidence import shown
from paceline.report.plan.facts import content, tiles, warnings
from paceline.report.plan.load import LoadedPlan
from paceline.report.plan.numbers import about, step_time

_PARTS = Parts(Path(__file__).parent, "plan.html.j2", "plan.js", "plan.css", kind="plan")


def render_plan(loaded: LoadedPlan) -> str:
    """One self-contained page."""
    result = loaded.result
    what = content(result)
    return render(
        _PARTS,
        what.title,
        {"figures": [payload(figure) for figure in what.figures]},
        what=what,
        tiles=tiles(result),
        warnings=warnings(result),
        advice=_advice(loaded),
        figures=[{"own": figure, "legend": legend(figure)} for figure in what.figures],
        evidence=shown(result, _writer(result)),
        numbers=_numbers(what),
        record=_record(loaded),
    )


def write_page(loaded: LoadedPlan, path: Path) -> None:
    """Write the page whole or not at all.

    Raises:
        PacelineError: it cannot be written; an older page of that name is untouched.
    """
    write_html(render_plan(loaded), path)


def _writer(result: AnyPlan) -> Callable[[float], str]:
    """How a number that was held out of the fit is written: a step's time, an error, or steps."""
    if isinstance(result, SpeedResult):
        return step_time
    return words.decimal if isinstance(result, DataResult) else about


def _advice(loaded: LoadedPlan) -> dict[str, Any] | None:
    result = loaded.result
    if not isinstance(result, BatchResult) or result.recommendation is None:
        return None
    advice = result.recommendation
    return {
        "rows": rows_of(advice),
        "command": advice.command,
        "because": advice.because,
        "unless": advice.unless,
    }


def _numbers(what: Content) -> Table:
    cells = [[one.label, one.value, one.detail] for one in what.facts]
    return Table("All numbers, and what belongs to each", ["Number", "Value", "With"], cells)


def _record(loaded: LoadedPlan) -> dict[str, Any]:
    run = RunDir(loaded.path)
    where = [("run directory", str(run.path)), ("numbers", str(result_path(run)))]
    where += [("picture", str(path)) for path in sorted(run.path.glob("*.png"))]
    return {"command": words.command(loaded.info), "environment": words.environment(loaded.info), "where": where}
