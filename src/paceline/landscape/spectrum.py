"""Eigenvalues, trace and density of the Hessian at the weights, each beside its reparametrisation-aware form.

All ranks compute each product with the Hessian together and then do the same arithmetic with it, so that they agree at
every step without a message. What was computed is kept: Lanczos steps and probes are never computed twice.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.curvature.density import Quadrature, curve, quadrature
from paceline.curvature.lanczos import Eigenpairs, Wanted, lanczos
from paceline.curvature.trace import Estimate, Probing, probes, trace_sample
from paceline.landscape.kept_parts import KeptRows, KeptValues
from paceline.landscape.session import Outcome, Session, as_array
from paceline.records.landscape import Density, Eigenvalues, Trace, finite

TRACE_ERROR = 0.05
"""Relative error at which the trace has converged: its 95 % interval reaches 9.8 % of it to either side."""


def eigenvalues(session: Session) -> Outcome:
    """The largest eigenvalues of H, and the largest of D H D."""
    found = {"": _search(session, aware=False), "weighted_": _search(session, aware=True)}
    fields: dict[str, Any] = {"each_converged": [pair.converged for pair in found[""].largest]}
    arrays: dict[str, NDArray[np.float64]] = {}
    warnings = []
    for prefix, pairs in found.items():
        values, residuals = [pair.value for pair in pairs.largest], _residuals(pairs, session)
        arrays |= {f"{prefix}eigenvalues": as_array(values), f"{prefix}eigenvalues_residual": as_array(residuals)}
        fields |= {f"{prefix}values": values, f"{prefix}residuals": residuals}
        fields |= {f"{prefix}converged": pairs.converged, f"{prefix}steps": pairs.steps, f"{prefix}note": pairs.note}
        if not pairs.converged:
            more = f"more steps: --steps {2 * session.config.steps}"
            warnings.append(f"{prefix.replace('_', ' ')}eigenvalues have not converged: {pairs.note}; {more}")
    result = Eigenvalues(**fields)
    top = ", ".join(f"{value:.4g}" for value in result.values)
    weighted = f"weighted {result.weighted_values[0]:.4g}" if result.weighted_values else "no weighted one"
    return Outcome(result, arrays, f"{top}; {weighted}", warnings)


def _residuals(pairs: Eigenpairs, session: Session) -> list[float]:
    """As the recursion tells them, but never below what rounding adds to a product with the Hessian."""
    floor = 10 * torch.finfo(session.space.dtype).eps * pairs.norm  # a large negative eigenvalue is not listed
    return [max(pair.residual, floor) for pair in pairs.largest]


def _search(session: Session, *, aware: bool) -> Eigenpairs:
    config, ranks = session.config, session.ranks
    wanted = Wanted(1 if aware else config.top, tol=config.tolerance, max_steps=config.steps, seed=config.seed)
    kept = KeptRows(ranks, "weighted-eigenvalues" if aware else "eigenvalues", session.space)
    found = None
    for found in lanczos(session.operator(aware=aware), session.space, wanted, kept):
        label = "weighted: " if aware else ""
        shown = f"{label}largest {found.largest[0].value:.4g}, residual {found.worst:.1e}"
        ranks.progress("eigenvalues", found.steps, config.steps, "products", shown)
    assert found is not None  # the least number of steps is above 0
    return found


def trace(session: Session) -> Outcome:
    """tr H and sum_i w_i^2 H_ii, each with its 95 % interval."""
    found = {"": _estimate(session, aware=False), "weighted_": _estimate(session, aware=True)}
    fields: dict[str, Any] = {}
    arrays: dict[str, NDArray[np.float64]] = {}
    warnings = []
    for prefix, one in found.items():
        arrays[f"{prefix}trace_samples"] = as_array(one.samples)
        fields |= {f"{prefix}value": one.mean, f"{prefix}error": finite(one.standard_error)}
        fields |= {f"{prefix}half_width": finite(one.half_width)}
        fields |= {f"{prefix}probes": one.probes, f"{prefix}converged": one.converged}
        if not one.converged:
            warnings.append(
                f"{prefix.replace('_', ' ')}trace: after {one.probes} probes the 95 % interval reaches {_share(one)} "
                f"of the value to either side, more than the {196 * TRACE_ERROR:g} % aimed at; "
                f"--probes {4 * one.probes} halves it"
            )
    summary = f"{_shown(found[''])}; weighted {_shown(found['weighted_'])}"
    return Outcome(Trace(**fields), arrays, summary, warnings)


def _share(one: Estimate) -> str:
    return f"{100 * one.half_width / abs(one.mean):.2g} %" if one.mean else "more than all"


def _shown(one: Estimate) -> str:
    return f"{one.mean:.4g} ± {one.half_width:.2g} (95 %)"


def _estimate(session: Session, *, aware: bool) -> Estimate:
    config, operator, space = session.config, session.operator(aware=aware), session.space
    kept = KeptValues(session.ranks, "weighted-trace" if aware else "trace")

    def sample(number: int) -> float:
        return float(kept.get(str(number), lambda: trace_sample(operator, space, config.seed, number)))

    found = None
    for found in probes(sample, Probing(relative_error=TRACE_ERROR, max_probes=config.probes)):
        label = "weighted: " if aware else ""
        session.ranks.progress("trace", found.probes, config.probes, "probes", label + _shown(found))
    assert found is not None  # the least number of probes is above 0
    return found


def density(session: Session) -> Outcome:
    """The density of eigenvalues."""
    config, space, apply = session.config, session.space, session.operator(aware=False)
    kept = KeptValues(session.ranks, "density")
    products = len(kept) * config.density_steps

    def counted(vector: Tensor) -> Tensor:
        nonlocal products
        products += 1
        session.ranks.progress("density", products, config.density_probes * config.density_steps, "products")
        return apply(vector)

    def make(number: int) -> list[list[float]]:
        steps = min(config.density_steps, space.size)
        one = quadrature(counted, space, steps=steps, seed=config.seed, number=number)
        return [one.nodes.tolist(), one.weights.tolist()]

    parts = [kept.get(str(number), functools.partial(make, number)) for number in range(config.density_probes)]
    found = [Quadrature(as_array(nodes), as_array(weights)) for nodes, weights in parts]
    drawn = curve(found)
    lowest = min(float(one.nodes[0]) for one in found)
    highest = max(float(one.nodes[-1]) for one in found)
    result = Density(
        grid=drawn.eigenvalues.tolist(),
        density=drawn.density.tolist(),
        bandwidth=drawn.bandwidth,
        probes=len(found),
        steps=max(len(one.nodes) for one in found),
        lowest=lowest,
        highest=highest,
    )
    arrays = {"density_grid": drawn.eigenvalues, "density_value": drawn.density, "density_error": drawn.spread}
    near = float(np.mean([one.weights[np.abs(one.nodes) <= 0.01 * max(abs(lowest), highest)].sum() for one in found]))
    share = "" if math.isnan(near) else f"; {100 * near:.1f} % within 1 % of the largest from 0"
    return Outcome(result, arrays, f"from {lowest:.4g} to {highest:.4g}{share}")
