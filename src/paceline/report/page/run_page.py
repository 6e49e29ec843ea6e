"""Runs as one HTML page: curves, where the time went, what differs, and what was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paceline.records.launched import RankExit
from paceline.report import launch_view, words
from paceline.report.comparison import Comparison, compare
from paceline.report.page.figures import payload, tabulate
from paceline.report.page.observed_section import figures_of, observed_section
from paceline.report.page.run_figures import run_figures
from paceline.report.page.shell import Parts, plotly_script, render, template, write_html
from paceline.report.page.theme import look
from paceline.report.quantities import goal, outcome_of, quantities
from paceline.report.run_record import Run
from paceline.report.summary import Summary, newest_checkpoint, summarise

_PARTS = Parts(Path(__file__).parent, "page.html.j2", "page.js")


def prepare_page() -> None:
    """Load what a page needs and no run decides, so that writing one takes a tenth of a second."""
    import scipy.special  # noqa: F401  # for the intervals of speeds

    template(_PARTS)
    plotly_script()


def render_page(runs: Sequence[Run], summaries: Sequence[Summary], comparison: Comparison | None = None) -> str:
    """One self-contained page.

    Args:
        runs: at least one.
        summaries: of the same runs, in the same order.
        comparison: of the same runs; made here when it is not given.
    """
    comparison = comparison or compare(runs, summaries)
    names = comparison.runs
    figures = run_figures(dict(zip(names, runs, strict=True)), summaries)
    cards = [_card(*one) for one in zip(runs, summaries, names, range(len(runs)), strict=True)]
    drawn = [*figures, *(figure for card in cards for figure in figures_of(card["observed"]))]
    return render(
        _PARTS,
        names[0] if len(runs) == 1 else f"{len(runs)} runs compared",
        {"figures": [payload(figure) for figure in drawn]},
        runs=cards,
        comparison=comparison,
        figures=figures,
        target_bars=_target_bars(summaries, names),
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
    write_html(render_page(runs, summaries, comparison), path)


def _card(run: Run, summary: Summary, name: str, index: int) -> dict[str, Any]:
    return {
        "id": f"run-{index + 1}",
        "name": name,
        "look": look(index),
        "summary": summary,
        "tiles": quantities(summary),
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
        "command": words.command(run.info),
        "environment": [*words.environment(run.info), *_machine(run.info.facts.get("machine"))],
        "where": _where(summary),
        "launch": _launch(summary),
        "observed": observed_section(run, summary, f"run-{index + 1}"),
    }


_RANK_COLUMNS: dict[str, Callable[[RankExit], str]] = {
    "Rank": lambda rank: str(rank.rank),
    "Ended": launch_view.rank_ended,
    "After": lambda rank: words.duration(rank.after_s),
    "Process": lambda rank: str(rank.pid),
}


def _launch(summary: Summary) -> dict[str, Any] | None:
    """Attempts, ranks and output of a run of `paceline run`."""
    launch = summary.launch
    if launch is None:
        return None
    attempts = [
        {
            "title": f"Attempt {each.attempt}: {outcome_of(each)} after {words.duration(each.duration_s)}",
            "cause": each.cause,
            "logs": each.logs,
            "ranks": tabulate(f"Ranks of attempt {each.attempt}", each.ranks, _RANK_COLUMNS),
        }
        for each in launch.attempts
    ]
    return {"attempts": attempts, "output": launch.output, "not_observed": ", ".join(launch.not_observed)}


def _machine(machine: object) -> list[tuple[str, str]]:
    """What the launcher noted of its machine."""
    if not isinstance(machine, dict):
        return []
    return [(str(name).replace("_", " "), words.plain(value)) for name, value in machine.items() if value is not None]


def _where(summary: Summary) -> list[tuple[str, str]]:
    where = summary.where
    events = where.events if Path(where.events).exists() else "none"
    if summary.launch is not None:
        return [("run directory", where.run), ("events", events), ("logs", where.logs)]
    return [("run directory", where.run), ("events", events), ("newest checkpoint", newest_checkpoint(summary))]


def _target_bars(summaries: Sequence[Summary], names: Sequence[str]) -> list[dict[str, Any]]:
    """One bar a run; its length is relative to the slowest."""
    times = [s.target.first.elapsed_s if s.target and s.target.first else None for s in summaries]
    longest = max((time for time in times if time is not None), default=0.0) or 1.0
    return [
        {
            "name": name,
            "goal": goal(summary.target),
            "look": look(index),
            "tile": quantities(summary)[-1],
            "width": None if time is None else f"{100 * time / longest:.2f}",
        }
        for index, (summary, name, time) in enumerate(zip(summaries, names, times, strict=True))
        if summary.target is not None
    ]
