"""A finished plan's page and pictures, written into its run directory."""

from __future__ import annotations

from pathlib import Path

from paceline.records.rundir import RunDir
from paceline.report.plan.load import load_plan
from paceline.report.plan.page import write_page
from paceline.report.plan.pictures import write_pictures


def write_plan_page(run_path: Path) -> Path:
    """Write the pictures, and the page that names them.

    Args:
        run_path: holds run.json and result.json of a plan.

    Returns:
        The page, report.html.

    Raises:
        PacelineError: a record is missing or damaged, or a file cannot be written; what stood there is untouched.
    """
    loaded = load_plan(run_path)
    write_pictures(loaded, run_path)
    page = RunDir(run_path).report
    write_page(loaded, page)  # last, since it names the pictures
    return page
