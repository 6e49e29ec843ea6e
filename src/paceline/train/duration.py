"""Lengths of training that users give in steps or in epochs: `200`, `2ep`, `0.5ep`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from paceline.records.errors import PacelineError

_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(steps?|s|ep|epochs?|e)?", re.IGNORECASE)


@dataclass(frozen=True)
class Duration:
    """So many steps, or so many epochs."""

    value: float
    in_epochs: bool

    @classmethod
    def parse(cls, text: str, flag: str) -> Duration:
        """Read what stands behind `flag`.

        Raises:
            PacelineError: neither a whole number of steps nor a number of epochs.
        """
        match = _FORM.fullmatch(text.strip())
        if not match:
            raise _not_a_duration(text, flag)
        in_epochs = (match[2] or "s").lower().startswith("e")
        value = float(match[1])
        if not math.isfinite(value) or (not in_epochs and value != int(value)):
            raise _not_a_duration(text, flag)
        return cls(value, in_epochs)

    def steps(self, steps_per_epoch: int) -> int:
        """As whole steps, rounded to the nearest."""
        return round(self.value * steps_per_epoch) if self.in_epochs else int(self.value)


def parse_interval(text: str, flag: str) -> Duration:
    """Read the length between two events of a training.

    Raises:
        PacelineError: no length, or none at all.
    """
    found = Duration.parse(text, flag)
    if found.value == 0:
        raise PacelineError(f"{flag} {text} is out of range", hint="at least one step")
    return found


def _not_a_duration(text: str, flag: str) -> PacelineError:
    return PacelineError(f"{flag} {text} is no length of training", hint=f"steps ({flag} 200) or epochs ({flag} 2ep)")
