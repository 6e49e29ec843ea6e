"""The largest eigenvalues of a symmetric operator, each with a bound on its error.

    for found in lanczos(apply, Space.of(point), Wanted(largest=5)):    # one product with H each
        print(found.steps, found.largest[0].value, found.converged)

**Signed.** Power iteration finds the eigenvalue of largest modulus; at a saddle that may be a negative one. Here
`largest` are the largest in the order of numbers. The most negative ones are the largest of -H, sign changed.

**Residuals.** For a Ritz pair (theta, u) there is an eigenvalue within |H u - theta u| of theta; that residual stands
beside each value, and is beta_m times the last component of u in the basis (Parlett 1998, section 13.2). A pair has
converged when it is at most `tol` * |theta|, or as small as rounding lets it become. What the recursion cannot know is
the rounding of H itself, which in float32 may exceed it.

**Eigenvalues that repeat exactly** are listed once: one start vector sees one direction of each eigenspace. Only when
H maps the basis into itself does the search continue with another start vector.

**Resumable.** Each step is a `Row` that is appended to `kept`. A search that is given the rows of an earlier one
repeats their arithmetic without a product, and then continues (with one product to find the next direction).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.curvature.krylov import Krylov
from paceline.curvature.operator import Operator, Space
from paceline.curvature.random_vectors import start_vector
from paceline.records.errors import PacelineError

ROUNDING = 40
"""A residual of so many units in the last place of the largest eigenvalue is as small as it becomes: products, and
vectors that are kept orthogonal to those before, each add some."""


@dataclass(frozen=True)
class Wanted:
    """What to search for.

    Attributes:
        largest: how many of the largest eigenvalues, 1 or more; fewer come back where the operator has fewer.
        tol: a pair has converged at a residual of at most tol * |theta|; 0 < tol < 1.
        max_steps: products with H at most, 1 or more.
        seed: of the start vectors.
    """

    largest: int = 1
    tol: float = 1e-3
    max_steps: int = 100
    seed: int = 0


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


@dataclass(frozen=True)
class Pair:
    """An eigenvalue and its error.

    Attributes:
        value: theta.
        residual: |H u - theta u| for its vector u of length 1; an eigenvalue lies within it of theta.
        converged: whether that is small enough.
    """

    value: float
    residual: float
    converged: bool


@dataclass(frozen=True)
class Eigenpairs:
    """What is known after some steps.

    Attributes:
        largest: in descending order; fewer than wanted at first.
        steps: products with H, those of an earlier, interrupted search included.
        converged: all pairs have.
        note: why not, in words; empty when converged.
        norm: the largest modulus that showed anywhere in the spectrum, listed or not: about the norm of H. What
            rounding adds to a product is relative to it.
    """

    largest: tuple[Pair, ...]
    steps: int
    converged: bool
    note: str
    norm: float

    @property
    def worst(self) -> float:
        """The largest relative residual, |H u - theta u| / |theta|."""
        return max(pair.residual / abs(pair.value) if pair.value else float(pair.residual > 0) for pair in self.largest)


def lanczos(
    apply: Operator, space: Space, wanted: Wanted, kept: MutableSequence[Row] | None = None
) -> Iterator[Eigenpairs]:
    """What is known after each step, until the wanted pairs have converged or `max_steps` are made.

    Args:
        apply: H times a vector.
        space: of its vectors; about `max_steps` of them are kept.
        wanted: what to search for.
        kept: the steps of an interrupted search for the same, which are repeated; new steps are appended to it.

    Raises:
        PacelineError: the kept steps have another size, or H times a vector is not finite.
    """
    kept = [] if kept is None else kept
    if any(tuple(row.vector.shape) != (space.size,) for row in kept):
        raise PacelineError(
            "the saved Lanczos steps belong to another problem",
            why=f"their vectors do not have the {space.size:,} numbers of this one",
            hint="remove them to start again",
        )
    krylov, stored, draws, done = Krylov(apply, space), len(kept), 0, False
    while len(krylov) < wanted.max_steps and not krylov.complete and not done:
        fresh = not len(krylov) or krylov.invariant
        draws += fresh
        if len(krylov) < stored:
            row = kept[len(krylov)]
            krylov.replay(row.vector, row.alpha, row.beta)
        else:
            start = start_vector(space.size, wanted.seed, draws) if fresh else None
            krylov.advance(krylov.following() if start is None else krylov.first(start))
            kept.append(Row(krylov.vectors[-1], krylov.alphas[-1], krylov.betas[-1]))
        found = _eigenpairs(krylov, space, wanted)
        done = found.converged
        yield found


def eigenpairs(apply: Operator, space: Space, wanted: Wanted) -> Eigenpairs:
    """The last result of `lanczos`: `converged` says whether everything wanted was found."""
    *_, last = lanczos(apply, space, wanted)
    return last


def _eigenpairs(krylov: Krylov, space: Space, wanted: Wanted) -> Eigenpairs:
    values, columns = krylov.eigen()
    norm = float(abs(values).max())
    floor = ROUNDING * torch.finfo(space.dtype).eps * norm
    pairs = []
    ascending = list(zip(values.tolist(), columns[-1].tolist(), strict=True))
    for value, last in ascending[::-1][: wanted.largest]:
        residual = abs(krylov.betas[-1] * last)
        pairs.append(Pair(value, residual, residual <= max(wanted.tol * abs(value), floor)))
    open_ = [pair.residual for pair in pairs if not pair.converged]
    note = ""
    if len(pairs) < min(wanted.largest, space.size):
        note = f"{len(pairs)} eigenvalues were found in {len(krylov)} steps"
    elif open_:
        note = (
            f"{len(pairs) - len(open_)} of {len(pairs)} eigenvalues converged in {len(krylov)} steps; "
            f"the largest residual is {max(open_):.2g}"
        )
    return Eigenpairs(tuple(pairs), len(krylov), not note, note, norm)
