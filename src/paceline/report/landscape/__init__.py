"""What `paceline landscape` measured, shown: one HTML page and pictures, from records alone."""

from __future__ import annotations

from pathlib import Path


def write_landscape(run_path: Path) -> list[Path]:
    """Write the page and the pictures of a finished measurement into its run directory.

    Args:
        run_path: holds run.json, result.json and landscape.npz.

    Returns:
        What was written, report.html first.

    Raises:
        PacelineError: a record is missing or damaged, or a file cannot be written; what stood there is untouched.
    """
    # Imported here, so that the package itself stays light.
    from paceline.records.rundir import RunDir
    from paceline.report.landscape.load import load_landscape
    from paceline.report.landscape.page import write_landscape_page
    from paceline.report.landscape.pictures import write_pictures

    loaded = load_landscape(run_path)
    pictures = write_pictures(loaded, run_path)
    page = RunDir(run_path).report
    write_landscape_page(loaded, page)  # last, since it names the pictures
    return [page, *pictures]
