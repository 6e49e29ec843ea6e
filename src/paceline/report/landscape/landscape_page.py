"""Measurements of `paceline landscape` as one HTML page: surface and contour, slices, curvature, every number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.records.landscape import arrays_path, result_path
from paceline.records.rundir import RunDir
from paceline.report import words
from paceline.report.comparison import labels
from paceline.report.landscape import tables
from paceline.report.landscape.landscape_figures import (
    curvature_figures,
    path_figure,
    path_note,
    slice_figures,
    starts_logarithmic,
)
from paceline.report.landscape.landscape_png import write_pictures
from paceline.report.landscape.measurement import Landscape, load_landscape
from paceline.report.landscape.quantities import headline, quantities, tiles
from paceline.report.landscape.surface import on_surface, surface_and_path
from paceline.report.page.figures import payload
from paceline.report.page.shell import Parts, render, write_html
from paceline.report.page.theme import look

_PARTS = Parts(Path(__file__).parent, "landscape.html.j2", "landscape.js", "landscape.css", kind="landscape")


def render_landscape(runs: Sequence[Landscape], names: Sequence[str]) -> str:
    """One self-contained page.

    Args:
        runs: at least one. Surfaces and paths are drawn for one only; of several, curves lie over each other, and
            numbers stand side by side.
        names: how each is called, no two the same.
    """
    alone = runs[0] if len(runs) == 1 else None
    rows = [quantities(run.result) for run in runs]
    common = [w for w in runs[0].result.warnings if all(w in run.result.warnings for run in runs)]
    title = f"{alone.result.task}: landscape" if alone else f"{len(runs)} landscapes compared"
    named = dict(zip(names, runs, strict=True))
    slices, curvature = slice_figures(named), curvature_figures(named)
    note = path_note(alone) if alone else None
    along = [path_figure(alone, note)] if alone is not None and note is not None else []
    own_path = {"note": note, "table": along[0].table} if alone and along and not on_surface(alone) else None
    return render(
        _PARTS,
        title,
        surface_and_path(alone) | {"figures": [payload(figure) for figure in (*slices, *along, *curvature)]},
        runs=[_card(*one, common) for one in zip(runs, names, range(len(runs)), strict=True)],
        common=common,
        surface=_surface(alone) if alone else None,
        own_path=own_path,
        slices=[*slices, *along],
        curvature=curvature,
        columns=_columns(runs),
        log=starts_logarithmic(named),
        numbers=tables.numbers_table(rows[0]) if alone else tables.side_by_side(rows, names),
    )


def write_landscape_page(runs: Sequence[Landscape], path: Path) -> None:
    """Write the page of one or several measurements whole or not at all.

    Raises:
        PacelineError: it cannot be written; an older page of that name is untouched.
    """
    names = [runs[0].info.name] if len(runs) == 1 else names_of(runs)
    write_html(render_landscape(runs, names), path)


def write_landscape(run_path: Path) -> list[Path]:
    """Write the page and the pictures of a finished measurement into its run directory.

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
    write_landscape_page([loaded], page)  # last, since it names the pictures
    return [page, *pictures]


def names_of(runs: Sequence[Landscape]) -> list[str]:
    """A short name for each, no two the same: what was measured, if that tells them apart."""
    return labels([run.result.target for run in runs], [run.path for run in runs])


def _card(run: Landscape, name: str, index: int, common: Sequence[str]) -> dict[str, Any]:
    result = run.result
    return {
        "id": f"run-{index + 1}",
        "name": name,
        "look": look(index),
        "first_line": headline(result),
        "batch_norm": result.batch_norm,
        "tiles": tiles(result),
        "warnings": [warning for warning in result.warnings if warning not in common],
        "command": words.command(run.info),
        "environment": words.environment(run.info),
        "where": _where(run),
        "times": [(name, words.duration(seconds)) for name, seconds in result.seconds.items()],
    }


def _where(run: Landscape) -> list[tuple[str, str]]:
    at = RunDir(run.path)
    rows = [("run directory", str(run.path)), ("numbers", str(result_path(at))), ("arrays", str(arrays_path(at)))]
    return rows + [("picture", str(path)) for path in sorted(run.path.glob("*.png"))]


def _surface(run: Landscape) -> dict[str, Any] | None:
    columns = run.columns("surface", ("x", "y"))
    if run.result.surface is None or not columns:
        return None
    part = run.result.surface
    note = f"Directions: {part.directions}."
    if part.failed:
        note += f" Left blank: {words.plural(part.failed, 'point')} without a finite loss."
    if on_surface(run):
        note += " Line: the run's path, seen in this plane; its last point is the weights."
    return {"note": note, "tables": [tables.surface_table(run, name) for name in columns]}


def _columns(runs: Sequence[Landscape]) -> list[str]:
    """The loss and the metrics that any slice of any run has."""
    groups = (("surface", ("x", "y")), ("line", ("t",)), ("interpolation", ("t",)))
    return list(dict.fromkeys(name for run in runs for prefix, axes in groups for name in run.columns(prefix, axes)))
