"""A target such as accuracy=0.90: what a run may stop at, and what reports look for."""

from __future__ import annotations

import math

import msgspec

from paceline.records.errors import PacelineError

_LESS_IS_BETTER = frozenset({"loss", "error", "err", "perplexity", "mse", "mae", "rmse", "nll", "wer", "cer"})


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a metric has to reach in `patience` evaluations in a row."""

    metric: str
    value: float
    patience: int = 1

    def reached(self, value: float) -> bool:
        """True if one measured `value` is as good; NaN never is."""
        return value <= self.value if less_is_better(self.metric) else value >= self.value


def less_is_better(metric: str) -> bool:
    """True if the metric counts down: a loss or an error, by the words of its name."""
    return not _LESS_IS_BETTER.isdisjoint(metric.lower().replace("-", "_").split("_"))


def parse_target(text: str, patience: int = 1) -> Target:
    """Read METRIC=VALUE.

    Raises:
        PacelineError: it is not of that form, or the value is not a finite number.
    """
    metric, sign, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not sign or not metric.strip() or not math.isfinite(number):
        raise PacelineError(f"--target {text} is not a target", hint="METRIC=VALUE, such as --target accuracy=0.90")
    return Target(metric=metric.strip(), value=number, patience=patience)
