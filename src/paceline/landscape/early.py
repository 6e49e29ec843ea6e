"""What is looked at before anything is written, so that a measurement that cannot be made leaves nothing behind."""

from __future__ import annotations

from paceline.curvature.fixed_loss import FixedLoss
from paceline.landscape.directions import require_length, require_plane
from paceline.landscape.ends import checkpoints_of_path, other_end
from paceline.landscape.session import Early, Session


def make_losses(session: Session) -> FixedLoss:
    """Make every loss that will be asked for, on this rank; returns that of slices.

    Raises:
        PacelineError: too many samples, or a batch norm that cannot be measured on so few.
    """
    if session.curved:
        _ = session.curvature
    return session.slices


def refuse_early(session: Session) -> Early:
    """Refuse what cannot be measured; rank 0 looks for all.

    Raises:
        PacelineError: too few checkpoints for a path, another run that does not fit, directions without length or that
            span no plane.
    """
    config, run, last = session.config, session.subject.run, session.subject.step
    loss, checkpoints, other = session.slices, 0, None
    if "trajectory" in config.measures and run is not None and last is not None:
        checkpoints = len(checkpoints_of_path(run, last, config))
    plane = "surface" in config.measures and config.plane == "random"
    if plane or "line" in config.measures:
        require_length(loss.point(), loss.layout, config.directions)
    if plane:
        require_plane(loss.point(), loss.layout, kind=config.directions, seed=config.seed)
    if "interpolation" in config.measures:
        other = other_end(config, session.subject.model).weights
    return Early(checkpoints, other)
