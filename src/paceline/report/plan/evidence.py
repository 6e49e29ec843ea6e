"""What a prediction was made from, and how it did where it could be checked: the same for every kind of plan."""

from __future__ import annotations

from collections.abc import Callable

from paceline.records.plan_results import Evidence, HeldOut
from paceline.report import words
from paceline.report.page.figures import Table, tabulate
from paceline.report.plan.numbers import error, percent
from paceline.report.quantities import Quantity

DOUBTFUL = 0.1
"""A held-out error above this is worth a second look."""
_NOTHING = 5e-4
"""Shown as 0.0 %, and then on no side."""


def checked(evidence: Evidence) -> str:
    """How large the intervals are, and how predictions did that could be checked."""
    return f"Intervals are {percent(evidence.confidence)} intervals. {_checked(evidence.held_out)}"


def _checked(rows: list[HeldOut]) -> str:
    if not rows:
        return "No run could be left out of the fit, so no prediction was checked against a measurement."
    worst = error(max((row.error for row in rows), key=abs))
    if len(rows) == 1:
        return f"One prediction was checked against measured runs that the fit had not seen: it is off by {worst}."
    return (
        f"{len(rows)} predictions were checked against measured runs that the fit had not seen: "
        f"the largest error is {worst}."
    )


def held_out_table(evidence: Evidence, show: Callable[[float], str]) -> Table:
    """Measured and predicted, of runs that a fit had not seen.

    Args:
        evidence: of a plan.
        show: how a number that was held out is written.
    """
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
