"""What is told while a data set is fetched. Whoever launched the fetch draws it; nothing here does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One moment of a fetch.

    Attributes:
        message: what is going on, as half a sentence without a full stop.
        done_bytes: so many are done, of what `message` names.
        total_bytes: of so many; None when that is not known (waiting, a package being fetched).
    """

    message: str
    done_bytes: int = 0
    total_bytes: int | None = None


Tell = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Tell nobody."""
