"""Two settings of the minima study set against each other, seed by seed: which way every number falls, and its ratio.

1. `minima_of` leaves out what is no minimum.
2. A `Contrast` pairs a number of one setting with that of the other, for every seed that has both.
3. Its direction is `higher` or `lower` only where all seeds fall on one side by more than the stated errors of the two
   numbers; else it is open.
4. `same_way` and `forms_agree` compare directions, and pass on what is open.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.studies.cell import final
from bench.studies.minima import PAIRS, TRAINED
from bench.studies.pages import diverged
from bench.studies.readings import LOSS, Reading

Records = Sequence[Mapping[str, Any]]
NO_MINIMUM_ABOVE = math.log(10) / 2
"""Training loss: half that of guessing evenly among ten classes. A point above it is no minimum."""
HIGHER, LOWER, OPEN = "higher", "lower", "open"
TWICE = {"residual": 1.0, "standard error": 2.0}
"""How many of its stated errors a number is allowed: a residual is a bound, a standard error is not."""


def of_setting(records: Records, setting: str) -> Records:
    """Records of one setting, by seed."""
    return sorted((r for r in records if r["setting"] == setting), key=lambda r: r["seed"])


def no_minimum(run: Mapping[str, Any], measured: Records) -> str | None:
    """Why a trained run is no minimum; None where it may be one.

    Args:
        run: its record.
        measured: what was measured at it, if anything: the loss there counts before that of the run's last batch.
    """
    if diverged(run):
        return "diverged"
    known = LOSS.values(measured) or [run["training"]["train_loss"]]
    if known[0] is None or not math.isfinite(known[0]):
        return "no finite training loss"
    return f"a training loss of {known[0]:.2f}" if known[0] > NO_MINIMUM_ABOVE else None


def left_out(records: Records) -> dict[tuple[str, int], str]:
    """(setting, seed) -> why that run is no minimum."""
    found = {}
    for setting in TRAINED:
        for run in of_setting(records, setting):
            measured = [r for r in of_setting(records, f"{setting}-sharpness") if r["seed"] == run["seed"]]
            reason = no_minimum(run, measured)
            if reason is not None:
                found[setting, run["seed"]] = reason
    return found


def minima_of(records: Records) -> Records:
    """Without runs that are no minimum, and without what was measured at them or on the way to them."""
    out = set(left_out(records))
    ends = {setting: (setting,) for setting in TRAINED}
    ends |= {f"{setting}-sharpness": (setting,) for setting in TRAINED}
    ends |= {f"{first}-to-{second}": (first, second) for first, second in PAIRS}
    return [r for r in records if not any((end, r["seed"]) in out for end in ends.get(r["setting"], ()))]


@dataclass(frozen=True)
class Contrast:
    """A number at two settings.

    Attributes:
        pairs: (number at the first, at the second, stated errors of both together) of every seed that has both.
    """

    pairs: tuple[tuple[float, float, float], ...]

    @property
    def ratios(self) -> list[float]:
        """Second over first, of those seeds where both are above 0."""
        return [second / first for first, second, _ in self.pairs if first > 0 and second > 0]

    @property
    def direction(self) -> str:
        """Of the second against the first: `higher`, `lower`, or `open`."""
        if self.pairs and all(second - first > error for first, second, error in self.pairs):
            return HIGHER
        if self.pairs and all(first - second > error for first, second, error in self.pairs):
            return LOWER
        return OPEN

    @property
    def ratio_text(self) -> str:
        """Median of the ratios with their range and n; says how many seeds have no ratio."""
        ratios, seeds = self.ratios, len(self.pairs)
        if not seeds:
            return "not measured"
        none = f"no ratio for {seeds - len(ratios)} of {seeds}, not above 0"
        if not ratios:
            return none
        middle = f"{statistics.median(ratios):.3g}"
        spread = f" ({min(ratios):.3g} to {max(ratios):.3g})" if len(ratios) > 1 else ""
        return f"{middle}{spread}, n = {len(ratios)}" + (f"; {none}" if len(ratios) < seeds else "")

    def difference_text(self, unit: str) -> str:
        """Median of second less first with the range and n."""
        differences = [second - first for first, second, _ in self.pairs]
        if not differences:
            return "not measured"
        spread = f" ({_signed(min(differences))} to {_signed(max(differences))})" if len(differences) > 1 else ""
        return f"{_signed(statistics.median(differences))}{spread} {unit}, n = {len(differences)}"


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # adding 0 turns -0.0 into 0.0


Value = Callable[[Mapping[str, Any]], tuple[float | None, float]]
"""A record's number, and by how much it may be off."""


def _contrast(firsts: Records, seconds: Records, value: Value) -> Contrast:
    others = {record["seed"]: value(record) for record in seconds}
    pairs = []
    for record in firsts:
        (first, error), (second, other_error) = value(record), others.get(record["seed"], (None, 0.0))
        if first is not None and second is not None:
            pairs.append((first, second, error + other_error))
    return Contrast(tuple(pairs))


def of_reading(records: Records, pair: tuple[str, str], reading: Reading) -> Contrast:
    """A measured number at the second setting of a pair against the first."""

    def value(record: Mapping[str, Any]) -> tuple[float | None, float]:
        return reading.value(record), TWICE.get(reading.kind, 0.0) * (reading.error_of(record) or 0.0)

    firsts, seconds = (of_setting(records, f"{setting}-sharpness") for setting in pair)
    return _contrast(firsts, seconds, value)


def of_accuracy(records: Records, pair: tuple[str, str]) -> Contrast:
    """Test accuracy in percent."""

    def value(record: Mapping[str, Any]) -> tuple[float | None, float]:
        found = final(record)
        return (None if found is None else 100 * found), 0.0

    firsts, seconds = (of_setting(records, setting) for setting in pair)
    return _contrast(firsts, seconds, value)


def same_way(one: str, other: str) -> bool | None:
    """Whether two directions agree; None where either is open."""
    return None if OPEN in (one, other) else one == other
