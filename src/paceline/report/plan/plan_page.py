"""A plan as one HTML page: warnings, the numbers that answer, figures, and what all of it rests on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.records.errors import PacelineError
from paceline.records.plan_results import (
    AnyPlan,
    BatchResult,
    DataResult,
    SpeedResult,
    TrendsResult,
    read_plan,
    result_path,
)
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import RunInfo
from paceline.report import words
from paceline.report.page.figures import payload, tabulate
from paceline.report.page.png_figures import draw, write_png
from paceline.report.page.shell import Parts, plotly_script, render, template, write_html
from paceline.report.plan.batch_section import rows_of
from paceline.report.plan.evidence import checked, held_out_table
from paceline.report.plan.numbers import about, step_time
from paceline.report.plan.sections import content, warnings
from paceline.report.quantities import Quantity

_PARTS = Parts(Path(__file__).parent, "plan.html.j2", "plan.js", "plan.css", kind="plan")
_TILES = 5


@dataclass(frozen=True)
class LoadedPlan:
    """What a plan left behind.

    Attributes:
        path: its run directory.
        info: run.json.
        result: result.json.
    """

    path: Path
    info: RunInfo
    result: AnyPlan


def load_plan(path: Path | str) -> LoadedPlan:
    """Read a plan.

    Raises:
        PacelineError: not a run directory of this verb, without a result, damaged, or of a newer schema.
    """
    run = RunDir(path)
    info = read_info(run.path)
    if info.verb != "plan":
        raise PacelineError(f"{path} is a run of paceline {info.verb}, not of paceline plan")
    return LoadedPlan(run.path, info, read_plan(run.path))


def prepare_page() -> None:
    """Load what a page and its pictures need and no plan decides; takes about a second."""
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401

    template(_PARTS)
    plotly_script()


def render_plan(loaded: LoadedPlan) -> str:
    """One self-contained page."""
    result = loaded.result
    what = content(result)
    columns: dict[str, Callable[[Quantity], str]] = {
        "Number": lambda one: one.label,
        "Value": lambda one: one.value,
        "With": lambda one: one.detail,
    }
    return render(
        _PARTS,
        what.title,
        {"figures": [payload(figure) for figure in what.figures]},
        what=what,
        tiles=what.quantities[:_TILES],
        warnings=warnings(result),
        advice=_advice(result),
        evidence=_evidence(result),
        numbers=tabulate("All numbers, and what belongs to each", what.quantities, columns),
        record=_record(loaded),
    )


def write_page(loaded: LoadedPlan, path: Path) -> None:
    """Write the page whole or not at all.

    Raises:
        PacelineError: it cannot be written; an older page of that name is untouched.
    """
    write_html(render_plan(loaded), path)


def write_plan_page(run_path: Path) -> Path:
    """Write the pictures, and the page that names them, into the run directory.

    Args:
        run_path: holds run.json and result.json of a plan.

    Returns:
        The page, report.html.

    Raises:
        PacelineError: a record is missing or damaged, or a file cannot be written; what stood there is untouched.
    """
    loaded = load_plan(run_path)
    what = content(loaded.result)
    drawn = [(one.picture, functools.partial(draw, one, what.title)) for one in what.figures if one.picture]
    write_png(drawn, run_path)
    page = RunDir(run_path).report
    write_page(loaded, page)
    return page


def _writer(result: AnyPlan) -> Callable[[float], str]:
    """How a number that was held out of the fit is written: a step's time, an error, or steps."""
    if isinstance(result, SpeedResult):
        return step_time
    return words.decimal if isinstance(result, DataResult) else about


def _evidence(result: AnyPlan) -> dict[str, Any]:
    if isinstance(result, TrendsResult):
        return {"checked": "", "held_out": None, "runs": [], "notes": result.notes}
    evidence = result.evidence
    held_out = held_out_table(evidence, _writer(result)) if evidence.held_out else None
    return {"checked": checked(evidence), "held_out": held_out, "runs": evidence.runs, "notes": evidence.notes}


def _advice(result: AnyPlan) -> dict[str, Any] | None:
    if not isinstance(result, BatchResult) or result.recommendation is None:
        return None
    advice = result.recommendation
    return {"rows": rows_of(advice), "command": advice.command, "because": advice.because, "unless": advice.unless}


def _record(loaded: LoadedPlan) -> dict[str, Any]:
    run = RunDir(loaded.path)
    where = [("run directory", str(run.path)), ("numbers", str(result_path(run)))]
    where += [("picture", str(path)) for path in sorted(run.path.glob("*.png"))]
    return {"command": words.command(loaded.info), "environment": words.environment(loaded.info), "where": where}
