"""Whether a measurement that goes on looks at the same loss as when it was begun.

Settings and weights are compared before; data may have changed since, or the file that holds the task. Either shows in
the loss at the weights, which every session computes anyway.
"""

from __future__ import annotations

import math

from paceline.landscape.session import Session
from paceline.landscape.spectrum import entries
from paceline.records.errors import PacelineError
from paceline.records.landscape import finite

_ROUNDING = {"fp32": 1e-5, "fp64": 1e-10}
"""Other threads, or another device, add in another order: a loss moves by no more than this share of it."""
_TURNED = 1e-2
"""A metric may jump where rounding decides, as an accuracy does at a tie."""


def require_same_loss(session: Session) -> None:
    """Keep what the loss and the metrics are at the weights, or compare with what was kept; all ranks together.

    Raises:
        PacelineError: on every rank, when they are others than before.
    """
    now = {"loss": finite(session.centre.loss)}
    if session.curved:
        now["curvature loss"] = finite(session.centre_gradient[0])
    losses = set(now)
    now |= {f"metric {name}": finite(value) for name, value in session.centre.metrics.items()}
    kept = entries(session.work, "centre")
    before = kept["values"] if "values" in kept else kept.add("values", now)
    for name in {**before, **now}:
        tolerance = _ROUNDING[session.config.precision] if name in losses else _TURNED
        if (name in before) != (name in now) or not _alike(before[name], now[name], tolerance):
            was, is_ = (_said(values, name) for values in (before, now))
            raise PacelineError(
                f"{session.config.target} has another loss than when this measurement was begun",
                why=f"the {name} at its weights was {was} and is {is_}: the data or the code of the task have changed",
                hint="start a new measurement; what was kept of this one belongs to the former loss",
            )


def _alike(before: float | None, now: float | None, tolerance: float) -> bool:
    if before is None or now is None:
        return before is now
    return math.isclose(before, now, rel_tol=tolerance, abs_tol=tolerance / 10)


def _said(values: dict[str, float | None], name: str) -> str:
    if name not in values:
        return "not there"
    value = values[name]
    return "no finite number" if value is None else f"{value:.8g}"
