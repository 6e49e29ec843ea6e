"""What a search for eigenvalues is asked for, what it keeps, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from paceline.records.errors import PacelineError


@dataclass(frozen=True)
class Row:
    """One step: all that is needed to repeat it.

    Attributes:
        vector: (n,) v_j, in the space's dtype.
        alpha: <v_j, H v_j>.
        beta: what couples v_j to the next vector; 0 where there is none.
    """

    vector: Tensor
    alpha: float
    beta: float


class Store(Protocol):
    """Where steps are kept. A store belongs to one operator, one `Wanted` and one seed; its owner sees to that."""

    def append(self, row: Row) -> None:
        """Keep a step; called after each product."""
        ...

    def rows(self) -> Sequence[Row]:
        """All steps so far, in order."""
        ...


class MemoryStore:
    """Steps in memory."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def append(self, row: Row) -> None:
        """See `Store`."""
        self._rows.append(row)

    def rows(self) -> Sequence[Row]:
        """See `Store`."""
        return self._rows


@dataclass(frozen=True)
class Wanted:
    """What is looked for.

    Attributes:
        largest: how many of the largest eigenvalues; fewer come back where the operator has fewer.
        smallest: how many of the smallest, the most negative ones first.
        tol: a pair has converged at a residual of at most tol * |theta|; 0 < tol < 1.
        max_steps: products with H at most.
        seed: of the start vectors.
        repeats: whether eigenvalues that repeat are looked for (see above).

    Raises:
        PacelineError: a number out of range.
    """

    largest: int = 1
    smallest: int = 0
    tol: float = 1e-3
    max_steps: int = 100
    seed: int = 0
    repeats: bool = True

    def __post_init__(self) -> None:
        if self.largest < 0 or self.smallest < 0 or self.largest + self.smallest < 1:
            raise PacelineError(
                f"{self.largest} of the largest and {self.smallest} of the smallest eigenvalues",
                hint="legal: 0 and more of each, 1 and more together",
            )
        if not 0 < self.tol < 1:
            raise PacelineError(f"a tolerance of {self.tol:g} on eigenvalues", hint="legal: above 0, below 1")
        if self.max_steps < 1:
            raise PacelineError(f"{self.max_steps} Lanczos steps", hint="legal: 1 and more")


@dataclass(frozen=True)
class Step:
    """How things stand after a step.

    Attributes:
        number: steps so far, 1 and more.
        repeated: it came from the store, without a product.
        largest, smallest: the best values so far, fewer at first.
        worst: the largest relative residual |H u - theta u| / |theta| of those.
        confirming: what was wanted has converged, and what repeats is looked for.
    """

    number: int
    repeated: bool
    largest: tuple[float, ...]
    smallest: tuple[float, ...]
    worst: float
    confirming: bool


@dataclass(frozen=True)
class Pair:
    """An eigenvalue and what is known of it.

    Attributes:
        value: theta.
        residual: |H u - theta u|; an eigenvalue lies within it of theta.
        converged: whether that is small enough.
        vector: (n,) u, of length 1.
    """

    value: float
    residual: float
    converged: bool
    vector: Tensor = field(repr=False)


@dataclass(frozen=True)
class Eigenpairs:
    """What was found.

    Attributes:
        largest: in descending order.
        smallest: in ascending order.
        steps: products with H that it took, those of earlier runs included.
        converged: all pairs have, and where `repeats` was asked for, nothing is missing among them.
        note: why not, in words; empty when converged.
        norm: the largest modulus that showed anywhere in the spectrum, listed or not: about the norm of H. What
            rounding adds to a product is relative to it.
    """

    largest: tuple[Pair, ...]
    smallest: tuple[Pair, ...]
    steps: int
    converged: bool
    note: str
    norm: float
