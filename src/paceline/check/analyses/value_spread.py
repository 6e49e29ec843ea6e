"""How a value differs between ranks, and how values made of others do."""

from __future__ import annotations

import ast
import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Spread(enum.Enum):
    """How a value differs between ranks."""

    EQUAL = "equal"
    """A constant, or made of constants, or a count that is the same on all ranks."""
    REDUCED = "reduced"
    """It passed a collective."""
    UNKNOWN = "unknown"
    LOCAL = "local"


class Cause(enum.Enum):
    """Why a local value is local."""

    DATA = "data"
    """Batches or a shard of this rank."""
    CLOCK = "clock"
    FILES = "files"
    RANK = "rank"


@dataclass(frozen=True)
class Origin:
    """Where a value comes from.

    Attributes:
        cause: of a local value.
        node: the expression that makes a local value local.
    """

    spread: Spread
    cause: Cause | None = None
    node: ast.AST | None = None

    @property
    def local(self) -> bool:
        """True if the value certainly is one of this rank alone."""
        return self.spread is Spread.LOCAL


EQUAL, REDUCED, UNKNOWN = Origin(Spread.EQUAL), Origin(Spread.REDUCED), Origin(Spread.UNKNOWN)


def joined(parts: Sequence[Origin | None]) -> Origin | None:
    """A value made of several: local if one of them is."""
    known = [each for each in parts if each is not None]
    for spread in (Spread.LOCAL, Spread.UNKNOWN, Spread.REDUCED):
        of_spread = [each for each in known if each.spread is spread]
        if of_spread:
            return min(of_spread, key=lambda each: each.cause is Cause.RANK)
    return EQUAL if known or not parts else None


def either(parts: Sequence[Origin | None]) -> Origin | None:
    """A value that is one of several: local only if none of them is reduced or unknown."""
    known = [each for each in parts if each is not None]
    spreads = {each.spread for each in known}
    if Spread.UNKNOWN in spreads or {Spread.LOCAL, Spread.REDUCED} <= spreads:
        return UNKNOWN
    for spread in (Spread.LOCAL, Spread.REDUCED):
        if spread in spreads:
            return next(each for each in known if each.spread is spread)
    return EQUAL if known else None
