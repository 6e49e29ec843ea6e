"""What settings take: ranges of numbers, and names."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from dataclasses import dataclass

from paceline.records.errors import PacelineError, choices

PER_DEVICE = "a number, or auto for one per GPU, else one per CPU core."
"""What a number of workers may be, for help."""


@dataclass(frozen=True)
class Range:
    """Legal values of a number: low <= value < high, or low < value when `above`; up to high when `closed`."""

    low: float
    high: float = math.inf
    above: bool = False
    closed: bool = False

    def check(self, flag: str, value: float) -> None:
        """Refuse a value outside.

        Raises:
            PacelineError: naming the flag and the range.
        """
        over = self.low < value if self.above else self.low <= value
        under = value <= self.high if self.closed else value < self.high
        if not (over and under and math.isfinite(value)):
            raise PacelineError(f"{flag} {_shown(value)} is out of range", hint=f"legal: {self}")

    def __str__(self) -> str:
        left = f"{_shown(self.low)} {'<' if self.above else '<='} value"
        return left if self.high == math.inf else f"{left} {'<=' if self.closed else '<'} {_shown(self.high)}"


NOT_NEGATIVE, COUNT, ABOVE_ZERO = Range(0), Range(1), Range(0, above=True)
FRACTION = Range(0, 1)
SHARE = Range(0, 1, above=True, closed=True)
SEED = Range(0, 2**63)


def one_of(flag: str, value: str, legal: Collection[str]) -> None:
    """Refuse a name that is not among the legal ones, with the nearest that is."""
    if value not in legal:
        close = difflib.get_close_matches(value, list(legal), n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise PacelineError(f"{flag} {value} is unknown", hint=f"{meant}legal values: {choices(legal)}")


def _shown(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"
