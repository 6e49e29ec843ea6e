"""What is looked at before anything is written, so that a measurement that cannot be made leaves nothing behind."""

from __future__ import annotations

from paceline.curvature.fixed_loss import FixedLoss
from paceline.landscape.directions import require_length
from paceline.landscape.ends import checkpoints_of_path, other_end
from paceline.landscape.session import Session
from paceline.landscape.subject import fingerprint


def refuse_early(session: Session, loss: FixedLoss) -> str | None:
    """Refuse what cannot be measured; rank 0 looks for all.

    Args:
        session: what is asked for.
        loss: any loss of the model.

    Returns:
        A digest of the other run's weights, where there is another run.

    Raises:
        PacelineError: too few checkpoints for a path, another run that does not fit, directions without length.
    """
    config, run, last = session.config, session.subject.run, session.subject.step
    if "trajectory" in config.measures and run is not None and last is not None:
        checkpoints_of_path(run, last, config)
    if "line" in config.measures or ("surface" in config.measures and config.plane == "random"):
        require_length(loss.point(), loss.layout, config.directions)
    if "interpolation" in config.measures:
        return fingerprint(other_end(config, loss)[2])
    return None
