"""Runs as one HTML page: template, style, script and Plotly in one file, nothing from the network.

What comes from a run is escaped by Jinja, or travels as JSON in which no character can end a script element. The
page's content security policy allows exactly the scripts written here, by their hashes, and no request at all; so
even a mistake in the escaping could neither run nor send anything.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from paceline import __version__
from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline.report import words
from paceline.report.compare import Comparison, compare
from paceline.report.facts import goal, tiles
from paceline.report.load import Run
from paceline.report.page.series import payload, smooth
from paceline.report.page.tables import metric_table, series_table
from paceline.report.page.theme import look, stylesheet_variables
from paceline.report.summary import Summary, summarise

_HERE = Path(__file__).parent


def render_page(runs: Sequence[Run], summaries: Sequence[Summary], comparison: Comparison | None = None) -> str:
    """One self-contained page.

    Args:
        runs: at least one.
        summaries: of the same runs, in the same order.
        comparison: of the same runs; made here when it is not given.
    """
    comparison = comparison or compare(runs, summaries)
    names = comparison.runs
    scripts = [_plotly(), (_HERE / "page.js").read_text(encoding="utf-8")]
    data = payload(runs, summaries, names)
    windows = _windows_in_words(runs)
    faint = "" if windows == "single steps" else "Faint: single steps, extremes kept. "
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("page.html.j2").render(
        title=names[0] if len(runs) == 1 else f"{len(runs)} runs compared",
        runs=[_card(*one) for one in zip(runs, summaries, names, range(len(runs)), strict=True)],
        comparison=comparison,
        metric=data["metric"],
        tables=_tables(data["metric"], runs, names),
        has_steps=any(run.totals.steps for run in runs),
        windows=windows,
        loss_note=f"Line: training, {windows}. {faint}Open points: evaluation.",
        target_bars=_target_bars(summaries, names),
        version=__version__,
        policy=_policy(scripts),
        style=Markup(stylesheet_variables() + (_HERE / "page.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        data=Markup(_json(data)),
    )


def write_page(
    runs: Sequence[Run],
    path: Path,
    summaries: Sequence[Summary] | None = None,
    comparison: Comparison | None = None,
) -> None:
    """Write the page whole or not at all.

    Args:
        runs: at least one.
        path: the file.
        summaries: of the same runs; made with each run's own target when they are not given.
        comparison: of the same runs; made here when it is not given.

    Raises:
        PacelineError: it cannot be written; an older page of that name is untouched.
    """
    summaries = [summarise(run) for run in runs] if summaries is None else summaries
    html = render_page(runs, summaries, comparison)
    try:
        # Names in a file system need not be text; what cannot be encoded is shown as a question mark.
        write_atomic(path, html.encode(errors="replace"))
    except PacelineError as error:
        hint = "paceline report RUN --output FILE writes the page elsewhere"
        raise PacelineError(error.what, why=error.why, hint=hint, exit_code=error.exit_code) from error


def _card(run: Run, summary: Summary, name: str, index: int) -> dict[str, Any]:
    command = words.command(run.info)
    return {
        "id": f"run-{index + 1}",
        "name": name,
        "look": look(index),
        "first_line": summary.first_line,
        "ended": summary.ended,
        "troubled": summary.status not in ("finished", "target"),
        "tiles": tiles(summary),
        "phases": [
            {
                "name": phase.name,
                "time": words.duration(phase.seconds),
                "share": words.share(phase.share),
                "width": f"{100 * phase.share:.3f}",
                "colour": number,
            }
            for number, phase in enumerate(summary.phases)
        ],
        "how": summary.throughput.how if summary.throughput else None,
        "notes": summary.notes,
        "warnings": summary.warnings,
        "command": command,
        "environment": words.environment(run.info),
        "where": _where(summary),
    }


def _where(summary: Summary) -> list[tuple[str, str]]:
    where = summary.where
    newest = "none was completed"
    if where.checkpoint is not None:
        newest = f"{where.checkpoint} ({words.size(where.checkpoint_bytes or 0)}, {summary.checkpoints:,} written)"
    return [("run directory", where.run), ("events", where.events), ("newest checkpoint", newest)]


def _tables(metric: str | None, runs: Sequence[Run], names: Sequence[str]) -> dict[str, Any]:
    loss_evaluated = any("loss" in run.evaluations.value for run in runs)
    return {
        "metric": metric_table(metric, runs, names) if metric else None,
        "evaluation_loss": metric_table("loss", runs, names) if loss_evaluated and metric != "loss" else None,
        "loss": series_table("Training loss", "loss", words.decimal, runs, names),
        "speed": series_table("Samples/s", "samples_per_s", words.rate, runs, names),
        "lr": series_table("Learning rate", "lr", lambda value: f"{value:.4g}", runs, names),
    }


def _windows_in_words(runs: Sequence[Run]) -> str:
    sizes = sorted({smooth(run.windows).stride for run in runs if run.totals.steps})
    if not sizes or sizes == [1]:
        return "single steps"
    return "means over " + " or ".join(words.plural(size, "step") for size in sizes)


def _target_bars(summaries: Sequence[Summary], names: Sequence[str]) -> list[dict[str, Any]]:
    """One bar a run; its length is relative to the slowest."""
    times = [s.target.first.elapsed_s if s.target and s.target.first else None for s in summaries]
    longest = max((time for time in times if time is not None), default=0.0) or 1.0
    return [
        {
            "name": name,
            "goal": goal(summary.target),
            "look": look(index),
            "tile": tiles(summary)[-1],
            "width": None if time is None else f"{100 * time / longest:.2f}",
        }
        for index, (summary, name, time) in enumerate(zip(summaries, names, times, strict=True))
        if summary.target is not None
    ]


def _json(value: object) -> str:
    # Inside a script element only `<` matters, but `>` and `&` cost nothing and spare the next reader the proof.
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@functools.cache
def _plotly() -> str:
    # Read as a file: importing plotly takes a second, and only its script is wanted.
    import importlib.util

    found = importlib.util.find_spec("plotly")
    assert found is not None
    assert found.origin is not None
    script = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    if "</script" in script.lower():
        raise RuntimeError("this version of plotly's script cannot stand in a page")
    # A carriage return would be changed by the HTML parser, and the script's hash with it.
    return script.replace("\r\n", "\n").replace("\r", "\n")
