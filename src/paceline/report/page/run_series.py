"""What the figures draw: columns small enough for a page, from columns of any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.report.noise import Noise
from paceline.report.page.figures import evenly as evenly
from paceline.report.page.figures import values
from paceline.report.page.theme import look
from paceline.report.run_record import Run
from paceline.report.summary import Summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

SMOOTH = 120
"""Points of a drawn mean; what is finer than that is noise at the width of a page."""
EVALUATIONS = 400


def payload(runs: Sequence[Run], summaries: Sequence[Summary], names: Sequence[str]) -> dict[str, Any]:
    """Everything that the page's script needs, as plain JSON values; what is not finite becomes None."""
    return {
        "metrics": [
            {"name": name, "id": f"plot-metric-{index}", "target": _target(name, summaries)}
            for index, name in enumerate(metrics_of(summaries))
        ],
        "runs": [_run(run, name, index) for index, (run, name) in enumerate(zip(runs, names, strict=True))],
    }


def metrics_of(summaries: Sequence[Summary]) -> list[str]:
    """Every metric that any of the runs has and that gets a figure, headlines first."""
    headlines = [summary.headline for summary in summaries if summary.headline]
    return list(dict.fromkeys([*headlines, *(metric.name for summary in summaries for metric in summary.further)]))


def _target(metric: str, summaries: Sequence[Summary]) -> float | None:
    """The one that all runs have for a metric."""
    targets = {s.target.value for s in summaries if s.target is not None and s.target.metric == metric}
    return targets.pop() if len(targets) == 1 else None


def _run(run: Run, name: str, index: int) -> dict[str, Any]:
    mean = run.windows.merged(SMOOTH)
    style = look(index)
    kept = evenly(len(run.evaluations.step), EVALUATIONS)
    evaluations = run.evaluations
    return {
        "name": name,
        "colour": style.colour,
        "dash": style.dash,
        "marker": style.marker,
        "single": {
            "step": values(run.steps.step),
            "samples": values(run.steps.samples),
            "elapsed_s": values(run.steps.elapsed_s),
            "loss": values(run.steps.loss),
        },
        "mean": {column: values(getattr(mean, column)) for column in _MEAN},
        "evaluation": {
            "step": values(evaluations.step[kept]),
            "samples": values(evaluations.samples[kept]),
            "elapsed_s": values(evaluations.elapsed_s[kept]),
        }
        | {f"metric {metric}": values(column[kept]) for metric, column in evaluations.value.items()},
        "noise": _noise(run.noise),
    }


def _noise(noise: Noise | None) -> dict[str, Any] | None:
    """What has no upper end is drawn up to the data set, beyond which nothing is measured."""
    if noise is None:
        return None
    top = float(noise.data) if noise.data else float(np.max(noise.value[np.isfinite(noise.value)], initial=1.0))
    return {
        "step": values(noise.step),
        "samples": values(noise.samples),
        "elapsed_s": values(noise.elapsed_s),
        "noise": values(np.minimum(noise.value, top)),
        "low": values(np.minimum(noise.low, top)),
        "high": values(np.minimum(noise.high, top)),
        "batch": values(noise.batch),
    }


_MEAN = ("step", "samples", "elapsed_s", "loss", "lr", "samples_per_s")
