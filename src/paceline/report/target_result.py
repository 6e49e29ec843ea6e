"""The target of a run (see records/target.py), and when the run met it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from paceline.records.errors import PacelineError
from paceline.records.target import Target, less_is_better, parse_target

if TYPE_CHECKING:
    from numpy.typing import NDArray


def target_of(config: dict[str, Any]) -> Target | None:
    """The target that a run was given, None when it had none or wrote it in a way that is not known here."""
    given = config.get("target")
    patience = config.get("patience")
    patience = patience if isinstance(patience, int) and patience >= 1 else 1
    try:
        if isinstance(given, str) and given:
            target = parse_target(given)
        elif isinstance(given, dict):
            target = msgspec.convert({"metric": given["metric"], "value": given["value"]}, Target)
        else:
            return None
    except (PacelineError, KeyError, msgspec.ValidationError):
        return None
    return Target(metric=target.metric, value=target.value, patience=patience)


def met(values: NDArray[np.float64], target: Target) -> tuple[int | None, int | None]:
    """When the target was met.

    Args:
        values: the metric at each evaluation, shape (k,); NaN meets nothing.

    Returns:
        Index of the first evaluation that meets it, and of the one that completes the first `patience` in a row;
        None where there is no such evaluation.
    """
    good = values <= target.value if less_is_better(target.metric) else values >= target.value
    first = int(np.argmax(good)) if good.any() else None
    row = 0
    for index, one in enumerate(good):
        row = row + 1 if one else 0
        if row == target.patience:
            return first, index
    return first, None
