"""Parts that cards share: numbers with their details, and where things are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from paceline.cli.card_layout import Row, Rows


class FactLike(Protocol):
    """A number with its name, what belongs to it, and whether it can be relied on."""

    @property
    def label(self) -> str:
        """Its name."""

    @property
    def value(self) -> str:
        """The number, as people read it."""

    @property
    def detail(self) -> str:
        """What belongs to it."""

    @property
    def sure(self) -> bool:
        """Whether it can be relied on."""


def fact_rows(facts: Sequence[FactLike]) -> Rows:
    """Label, value and detail of each; the detail of what cannot be relied on stands out."""
    return Rows([Row(each.label, each.value, [each.detail], "" if each.sure else "yellow") for each in facts])


def place_rows(places: Iterable[tuple[str, Path]]) -> Rows:
    """Names and paths, of what exists."""
    return Rows([Row(label, str(path)) for label, path in places if path.exists()])
