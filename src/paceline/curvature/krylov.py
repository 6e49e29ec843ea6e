"""One Krylov basis of a symmetric operator, orthogonal to full precision: what `lanczos` and `density` are built from.

    H V = V T + beta_m v_{m+1} e_m^T,    V^T V = 1,    T tridiagonal with alphas on and betas beside its diagonal

(Lanczos 1950; Parlett, The Symmetric Eigenvalue Problem, 1998, chapter 13). In floating point the plain recursion loses
orthogonality as soon as an eigenvalue converges, and finds copies of it that do not exist. Here each new vector is
made orthogonal to all before it, twice, which is enough (Parlett 1998, section 6.9), in float64.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.curvature.operator import Operator, Space, applied

Floats = NDArray[np.float64]


class Krylov:
    """A basis that grows by one vector a step.

    Args:
        apply: H.
        space: of its vectors; the basis is kept in its dtype, coefficients in float64.

    Attributes:
        vectors: v_1, ..., v_m.
        alphas: m numbers.
        betas: m numbers; the last couples v_m to the vector that would follow, 0 where the basis spans an invariant
            subspace.
    """

    def __init__(self, apply: Operator, space: Space) -> None:
        self._apply, self._space = apply, space
        self._rest: Tensor | None = None
        self.vectors: list[Tensor] = []
        self.alphas: list[float] = []
        self.betas: list[float] = []

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def complete(self) -> bool:
        """Whether there is no further direction."""
        return len(self.vectors) >= self._space.size

    @property
    def invariant(self) -> bool:
        """Whether H maps the span of the basis into itself, to rounding."""
        return bool(self.betas) and self.betas[-1] == 0.0

    def first(self, start: Tensor) -> Tensor:
        """`start` (n,) float64 made orthogonal to all vectors and of length 1; only where the basis is not complete."""
        rest = self._orthogonal(start.to(self._space.device, torch.float64))
        # Dividing by a small norm magnifies what orthogonality is missing, so it is made good once more.
        rest = self._orthogonal(rest / rest.norm())
        return self._unit(rest)

    def following(self) -> Tensor:
        """v_{m+1}; only where the basis is neither complete nor invariant. After `replay` it costs a product."""
        if self._rest is None:
            self._rest = self._new_rest(self.vectors[-1])[1]
        rest = self._rest / self._rest.norm()
        if self.betas[-1] < 1e-4 * self._scale():
            # So little was left that the division magnifies what orthogonality is missing.
            rest = self._orthogonal(rest)
        return self._unit(rest)

    def advance(self, vector: Tensor) -> None:
        """Add `vector`, from `first` or `following`, by one product with H."""
        self.vectors.append(vector)
        alpha, rest = self._new_rest(vector)
        beta = float(rest.norm())
        self.alphas.append(alpha)
        floor = 10 * torch.finfo(self._space.dtype).eps * self._scale()
        self.betas.append(0.0 if beta <= floor or self.complete else beta)
        self._rest = rest

    def replay(self, vector: Tensor, alpha: float, beta: float) -> None:
        """Add a step that was made before."""
        self.vectors.append(vector.to(self._space.device, self._space.dtype))
        self.alphas.append(alpha)
        self.betas.append(beta)
        self._rest = None

    def eigen(self) -> tuple[Floats, Floats]:
        """Ritz values (m,) in ascending order, and the eigenvectors (m, m) of T in columns."""
        from scipy.linalg import eigh_tridiagonal  # 0.2 s, which a training without --monitor would pay on every rank

        values, columns = eigh_tridiagonal(self.alphas, self.betas[:-1], lapack_driver="stev")
        return values, columns

    def _scale(self) -> float:
        """At most the norm of H, and about that once the largest eigenvalue shows."""
        return max([abs(alpha) for alpha in self.alphas] + self.betas)

    def _new_rest(self, vector: Tensor) -> tuple[float, Tensor]:
        """<v, H v>, and H v without its components along all vectors so far, v included, in float64."""
        product = applied(self._apply, vector).to(torch.float64)
        alpha = float(torch.dot(vector.to(torch.float64), product))
        return alpha, self._orthogonal(product)

    def _unit(self, values: Tensor) -> Tensor:
        unit: Tensor = (values / values.norm()).to(self._space.dtype)
        return unit

    def _orthogonal(self, values: Tensor) -> Tensor:
        values = values.clone()
        for _ in range(2):
            for vector in self.vectors:
                wide = vector.to(torch.float64)
                values.sub_(wide, alpha=float(torch.dot(wide, values)))
        return values
