"""The largest and the most negative eigenvalues of a symmetric operator, with what is known about their error.

    lanczos = Lanczos(apply, Space.of(point), Wanted(largest=5))
    for step in lanczos.steps():            # one product with H each; may be left and gone on with at any step
        print(step.number, step.largest, step.converged)
    pairs = lanczos.result()

**Signed.** Power iteration finds the eigenvalue of largest modulus; at a saddle that may be a negative one. Here
`largest` are the largest in the order of numbers.

**Nothing unconverged in silence.** For a Ritz pair (theta, u) there is an eigenvalue within |H u - theta u| of theta;
that residual stands beside each value, and is beta_m times the last component of u in the basis (Parlett 1998, section
13.2). A pair has converged when it is at most `tol` * |theta|, or as small as rounding lets it become. What the
recursion cannot know is the rounding of H itself, which in float32 may exceed it; `result(products=True)` measures.

**Eigenvalues that repeat.** From one start vector the method sees one direction of each eigenspace. So when the wanted
pairs have converged, a second search with a new start vector, orthogonal to them, looks for an eigenvalue that belongs
among them; it is repeated until none is found. It takes about as many products again. Where one pair is wanted at an
end of the spectrum it cannot change the value, and is left out.

**Resumable.** Every step is a `Row` in a `Store`; a search that starts with rows in its store repeats their arithmetic
without a product, and goes on (with one product to find out where it was).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.curvature.eigen import Eigenpairs, MemoryStore, Pair, Row, Step, Store, Wanted
from paceline.curvature.krylov import Floats, Krylov
from paceline.curvature.operator import Operator, Space, applied
from paceline.curvature.vectors import start_vector
from paceline.records.errors import PacelineError

ROUNDING = 40
"""A residual of so many units in the last place of the largest eigenvalue is as small as it becomes: products, and
vectors that are kept orthogonal to those of earlier searches, each add some."""
_SETTLED = 1e-2
"""Relative residual at which the end of the rest of the spectrum is known well enough: nothing is missing."""


class Lanczos:
    """A search. `steps` carries it out, `result` says what it has come to at any time.

    Args:
        apply: H times a vector.
        space: of its vectors; about `max_steps` of them are kept.
        wanted: what is looked for.
        store: where steps are kept; may hold some.

    Raises:
        PacelineError: the store's steps have another size.
    """

    def __init__(self, apply: Operator, space: Space, wanted: Wanted, store: Store | None = None) -> None:
        self._apply, self._space, self._wanted = apply, space, wanted
        self._store = MemoryStore() if store is None else store
        if any(tuple(row.vector.shape) != (space.size,) for row in self._store.rows()):
            raise PacelineError(
                "the saved Lanczos steps belong to another problem",
                why=f"their vectors do not have the {space.size:,} numbers of this one",
                hint="remove them to start again",
            )
        self._begin()

    def _begin(self) -> None:
        self._stored = list(self._store.rows())
        self._number = self._draws = 0
        self._known: list[_Ritz] = []  # ends of the spectrum as earlier searches found them
        self._now: list[_Ritz] = []  # as they stand
        self._certain = False
        self._norm = 0.0  # what has shown of the norm of H: rounding errors are relative to that

    def steps(self) -> Iterator[Step]:
        """Search until what is wanted is there, or `max_steps` are made; yields after each step.

        Called again, it repeats the steps of its store first.

        Raises:
            PacelineError: H times a vector is not finite.
        """
        self._begin()
        while True:
            confirming = bool(self._known)
            krylov = Krylov(self._apply, self._space, [ritz.vector() for ritz in self._known], self._norm)
            yield from self._search(krylov, confirming)
            if not (krylov.complete or self._decided(krylov, confirming)):
                return  # out of steps
            nothing_new = self._now == self._known
            self._known = self._now
            if krylov.complete or nothing_new or not self._may_repeat:
                self._certain = True
                return

    def result(self, *, products: bool = False) -> Eigenpairs:
        """The pairs as they stand.

        Args:
            products: measure each residual by a product with H, instead of taking it from the recursion. Pairs that
                repeat others are measured anyway.
        """
        pairs = {id(ritz): self._pair(ritz, products) for ritz in self._now}
        largest, smallest = ([pairs[id(ritz)] for ritz in end] for end in self._ends(self._now))
        count = self._wanted.largest, self._wanted.smallest
        enough = (len(largest), len(smallest)) == tuple(min(each, self._space.size) for each in count)
        open_ = [pair for pair in pairs.values() if not pair.converged]
        note = ""
        if not enough:
            note = f"{len(pairs)} eigenvalues were found in {self._number} steps"
        elif open_:
            worst = max(pair.residual for pair in open_)
            note = (
                f"{len(pairs) - len(open_)} of {len(pairs)} eigenvalues converged in {self._number} steps; "
                f"the largest residual is {worst:.2g}"
            )
        elif not self._certain:
            note = f"whether eigenvalues repeat was not settled in {self._number} steps"
        return Eigenpairs(tuple(largest), tuple(smallest), self._number, not note, note, self._norm)

    @property
    def _may_repeat(self) -> bool:
        return self._wanted.repeats and max(self._wanted.largest, self._wanted.smallest) > 1

    def _search(self, krylov: Krylov, confirming: bool) -> Iterator[Step]:
        while self._number < self._wanted.max_steps and not krylov.complete:
            repeated = self._advance(krylov)
            self._number += 1
            self._now = self._merged(krylov)
            yield self._report(repeated, confirming)
            if self._decided(krylov, confirming):
                return

    def _advance(self, krylov: Krylov) -> bool:
        """One step, from the store where it has it."""
        fresh = not len(krylov) or krylov.invariant
        self._draws += fresh
        if self._number < len(self._stored):
            row = self._stored[self._number]
            krylov.replay(row.vector, row.alpha, row.beta)
            return True
        if fresh:
            krylov.advance(krylov.first(start_vector(self._space.size, self._wanted.seed, self._draws)))
        else:
            krylov.advance(krylov.following())
        self._store.append(Row(krylov.vectors[-1], krylov.alphas[-1], krylov.betas[-1]))
        return False

    def _merged(self, krylov: Krylov) -> list[_Ritz]:
        """The wanted ends of what earlier searches and this one found, in ascending order."""
        found = self._ritz(krylov)
        if self._known:
            lowest = [r for r in found if self._wanted.smallest > 1 and r.clearly_below(self._ends(self._known)[1][-1])]
            highest = [r for r in found if self._wanted.largest > 1 and self._ends(self._known)[0][-1].clearly_below(r)]
            found = sorted([*self._known, *lowest, *highest], key=lambda ritz: ritz.value)
        largest, smallest = self._ends(found)
        chosen = {id(ritz) for ritz in (*largest, *smallest)}
        return [ritz for ritz in found if id(ritz) in chosen]

    def _ritz(self, krylov: Krylov) -> list[_Ritz]:
        """All Ritz pairs of a basis, in ascending order."""
        values, columns = krylov.eigen()
        self._norm = max(self._norm, float(abs(values).max()))
        floor = ROUNDING * torch.finfo(self._space.dtype).eps * self._norm
        found = []
        for value, column in zip(values.tolist(), columns.T, strict=True):
            residual = abs(krylov.betas[-1] * float(column[-1]))
            converged = residual <= max(self._wanted.tol * abs(value), floor)
            found.append(_Ritz(value, residual, floor, converged, krylov, column, bool(self._known)))
        return found

    def _ends(self, ascending: list[_Ritz]) -> tuple[list[_Ritz], list[_Ritz]]:
        """The wanted largest, in descending order, and the wanted smallest, in ascending order."""
        return ascending[::-1][: self._wanted.largest], ascending[: self._wanted.smallest]

    def _decided(self, krylov: Krylov, confirming: bool) -> bool:
        """Whether this search has found what it is for."""
        if not len(krylov) or not all(ritz.converged for ritz in self._now):
            return False
        if not confirming:
            return len(krylov) >= min(self._wanted.largest + self._wanted.smallest, self._space.size)
        found = self._ritz(krylov)
        largest, smallest = self._ends(self._known)
        outside = []
        if self._wanted.largest > 1:
            outside.append(_outside(found[-1], found[-1].value + found[-1].residual < largest[-1].value))
        if self._wanted.smallest > 1:
            outside.append(_outside(found[0], found[0].value - found[0].residual > smallest[-1].value))
        return all(outside)

    def _report(self, repeated: bool, confirming: bool) -> Step:
        largest, smallest = self._ends(self._now)
        shares = [ritz.residual / abs(ritz.value) if ritz.value else float(ritz.residual > 0) for ritz in self._now]
        return Step(
            self._number,
            repeated,
            tuple(ritz.value for ritz in largest),
            tuple(ritz.value for ritz in smallest),
            max(shares),
            confirming,
        )

    def _pair(self, ritz: _Ritz, product: bool) -> Pair:
        vector, residual, converged = ritz.vector(), ritz.residual, ritz.converged
        if product or ritz.deflated:
            residual = float((applied(self._apply, vector) - ritz.value * vector).to(torch.float64).norm())
            converged = residual <= max(self._wanted.tol * abs(ritz.value), ritz.floor)
        return Pair(ritz.value, residual, converged, vector)


@dataclass(frozen=True, eq=False)
class _Ritz:
    """A Ritz pair; its vector is only made when it is asked for.

    `deflated`: found while the basis was kept away from others. Those are eigenvectors only up to their own residuals,
    so the recursion does not tell all of this one's.
    """

    value: float
    residual: float
    floor: float
    converged: bool
    krylov: Krylov
    column: Floats
    deflated: bool

    def vector(self) -> Tensor:
        return self.krylov.combine(self.column)

    def clearly_below(self, other: _Ritz) -> bool:
        return self.value + max(self.residual, other.residual, self.floor, other.floor) < other.value


def _outside(ritz: _Ritz, beyond_doubt: bool) -> bool:
    """Whether the end of the rest of the spectrum is known well enough."""
    return ritz.converged or (beyond_doubt and ritz.residual <= _SETTLED * abs(ritz.value))


def eigenpairs(apply: Operator, space: Space, wanted: Wanted, store: Store | None = None) -> Eigenpairs:
    """Search to the end. See `Lanczos`."""
    search = Lanczos(apply, space, wanted, store)
    for _ in search.steps():
        pass
    return search.result()
