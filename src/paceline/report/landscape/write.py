"""A finished measurement's page and pictures, written into its run directory."""

from __future__ import annotations

from pathlib import Path

from paceline.records.rundir import RunDir
from paceline.report.landscape.load import load_landscape
from paceline.report.landscape.page import write_landscape_page
from paceline.report.landscape.pictures import write_pictures


def write_landscape(run_path: Path) -> list[Path]:
    """Write the page and the pictures.

    Args:
        run_path: holds run.json, result.json and landscape.npz.

    Returns:
        What was written, report.html first.

    Raises:
        PacelineError: a record is missing or damaged, or a file cannot be written; what stood there is untouched.
    """
    loaded = load_landscape(run_path)
    pictures = write_pictures(loaded, run_path)
    page = RunDir(run_path).report
    write_landscape_page(loaded, page)  # last, since it names the pictures
    return [page, *pictures]
