"""What a prediction was made from, and how it did where it could be checked: the same for every kind of plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.records.plan_results import AnyPlan, Evidence, HeldOut, TrendsResult
from paceline.report import words
from paceline.report.page.figures import Table, tabulate
from paceline.report.plan.numbers import about, error, percent
from paceline.report.quantities import Quantity

DOUBTFUL = 0.1
"""A held-out error above this is worth a second look."""
_NOTHING = 5e-4
"""Shown as 0.0 %, and then on no side."""


@dataclass(frozen=True)
class Shown:
    """Evidence in words.

    Attributes:
        confidence: what every interval is; empty without intervals.
        checked: sentence about the held-out predictions; empty where there is nothing to check.
        held_out: their table; None without any.
        runs: directories.
        notes: what limits the prediction.
    """

    confidence: str
    checked: str
    held_out: Table | None
    runs: list[str]
    notes: list[str]


def shown(result: AnyPlan, show: Callable[[float], str] = about) -> Shown:
    """The evidence of a result.

    Args:
        result: any plan.
        show: how a held-out number is written.
    """
    if isinstance(result, TrendsResult):
        return Shown("", "", None, [], list(result.notes))
    evidence = result.evidence
    return Shown(
        confidence=f"Intervals are {percent(evidence.confidence)} intervals.",
        checked=_checked(evidence.held_out),
        held_out=_held_out_table(evidence, show) if evidence.held_out else None,
        runs=list(evidence.runs),
        notes=list(evidence.notes),
    )


def _checked(rows: list[HeldOut]) -> str:
    if not rows:
        return "No run could be left out of the fit, so no prediction was checked against a measurement."
    worst = max((row.error for row in rows), key=abs)
    if len(rows) == 1:
        return (
            f"One prediction was checked against measured runs that the fit had not seen: it is off by {error(worst)}."
        )
    return (
        f"{len(rows)} predictions were checked against measured runs that the fit had not seen: "
        f"the largest error is {error(worst)}."
    )


def _held_out_table(evidence: Evidence, show: Callable[[float], str]) -> Table:
    """Measured and predicted, of runs that a fit had not seen."""
    columns: dict[str, Callable[[HeldOut], str]] = {
        "Run": lambda row: row.what,
        "Measured": lambda row: show(row.measured),
        "Predicted": lambda row: show(row.predicted),
        "Error": lambda row: error(row.error),
    }
    return tabulate("Predictions checked against runs left out of the fit", evidence.held_out, columns)


def held_out_quantity(evidence: Evidence) -> Quantity:
    """How large the error of a prediction was where it could be checked."""
    rows = evidence.held_out
    if not rows:
        return Quantity.of("held-out error", "not checked", "no run could be left out of the fit", sure=False)
    worst = max((row.error for row in rows), key=abs)
    of = "the one that could be checked" if len(rows) == 1 else f"the largest of {len(rows)}"
    side = "" if abs(worst) < _NOTHING else "predicted too high; " if worst > 0 else "predicted too low; "
    detail = f"{side}{of}, against measured runs that the fit had not seen"
    return Quantity.of("held-out error", words.share(abs(worst)), detail, sure=abs(worst) <= DOUBTFUL)
