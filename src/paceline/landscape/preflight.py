"""Refuse what cannot be measured before anything is written, and a resumed measurement whose loss has changed."""

from __future__ import annotations

import math

from paceline.landscape.directions import require_length, require_plane
from paceline.landscape.interpolation import find_other
from paceline.landscape.kept_parts import KeptValues
from paceline.landscape.session import Session
from paceline.landscape.subject import digest_of_checkpoint
from paceline.landscape.trajectory import checkpoints_of_path
from paceline.records.errors import PacelineError
from paceline.records.landscape import finite

_ROUNDING = {"fp32": 1e-5, "fp64": 1e-10}
"""Other threads, or another device, add in another order: a loss moves by no more than this share of it."""
_TIES = 1e-2
"""A metric may jump where rounding decides, as an accuracy does at a tie."""


def make_losses(session: Session) -> None:
    """Make every loss that will be asked for, on this rank.

    Raises:
        PacelineError: too many samples, or a batch norm that cannot be measured on so few.
    """
    _ = session.samples, session.curvature_samples, session.slices
    if session.curved:
        _ = session.curvature


def preflight(session: Session) -> tuple[int, str | None]:
    """Refuse what cannot be measured. Called on rank 0 alone.

    Returns:
        `checkpoints` and `other_weights` of the session.

    Raises:
        PacelineError: too few checkpoints for a path, another run that does not fit, directions without length or that
            span no plane.
    """
    config, loss, checkpoints, other_weights = session.config, session.slices, 0, None
    if "trajectory" in config.measures and session.subject.run is not None:
        checkpoints = len(checkpoints_of_path(session))
    plane = "surface" in config.measures and config.plane == "random"
    if plane or "line" in config.measures:
        require_length(loss.point(), loss.layout, config.directions)
    if plane:
        require_plane(loss.point(), loss.layout, kind=config.directions, seed=config.seed)
    if "interpolation" in config.measures:
        _, checkpoint, _ = find_other(config, session.subject.model)
        other_weights = digest_of_checkpoint(checkpoint)
    return checkpoints, other_weights


def require_same_loss(session: Session) -> None:
    """Keep the loss and the metrics at the weights, or compare them with the kept ones; all ranks together.

    Settings and weights are compared before; data may have changed since, or the file that holds the task. Either shows
    in the loss at the weights, which every session computes anyway.

    Raises:
        PacelineError: on every rank, when they differ.
    """
    now = {"loss": finite(session.centre.loss)}
    if session.curved:
        now["curvature loss"] = finite(session.centre_gradient[0])
    losses = set(now)
    now |= {f"metric {name}": finite(value) for name, value in session.centre.metrics.items()}
    before = KeptValues(session.ranks, "centre").get("values", lambda: now)
    for name in {**before, **now}:
        tolerance = _ROUNDING[session.config.precision] if name in losses else _TIES
        if (name in before) != (name in now) or not _alike(before[name], now[name], tolerance):
            was, is_ = (_in_words(values, name) for values in (before, now))
            raise PacelineError(
                f"{session.config.target} has another loss than when this measurement was begun",
                why=f"the {name} at its weights was {was} and is {is_}: the data or the code of the task have changed",
                hint="start a new measurement; what was kept of this one belongs to the former loss",
            )


def _alike(before: float | None, now: float | None, tolerance: float) -> bool:
    if before is None or now is None:
        return before is now
    return math.isclose(before, now, rel_tol=tolerance, abs_tol=tolerance / 10)


def _in_words(values: dict[str, float | None], name: str) -> str:
    if name not in values:
        return "not there"
    value = values[name]
    return "no finite number" if value is None else f"{value:.8g}"
