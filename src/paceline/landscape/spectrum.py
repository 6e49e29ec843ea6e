"""Eigenvalues, trace and density of the Hessian at the weights, each beside its reparametrisation-aware form.

All ranks compute each product with the Hessian together and then do the same arithmetic with it, so that they agree at
every step without a message. What was computed is kept: Lanczos steps and probes are never computed twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from paceline.curvature.density import Quadrature, curve, quadratures
from paceline.curvature.eigen import Eigenpairs, Wanted
from paceline.curvature.lanczos import Lanczos
from paceline.curvature.trace import Estimate, Probing, probes
from paceline.landscape.kept_parts import Entries, LanczosStore
from paceline.landscape.session import Outcome, Session, as_array
from paceline.landscape.work import Work
from paceline.records.landscape import Density, Eigenvalues, Trace, finite

TRACE_ERROR = 0.05
"""Relative error at which the trace has converged: its 95 % interval reaches 9.8 % of it to either side."""


def entries(work: Work, name: str) -> Entries:
    """What was kept of a measure, equal on all ranks."""
    path = work.parts / f"{name}.jsonl"
    return Entries(path, work.from_rank_zero(lambda: Entries.read(path, work.note)), writes=work.rank == 0)


def eigenvalues(session: Session) -> Outcome:
    """The largest eigenvalues of H, and the largest of D H D."""
    plain = _search(session, aware=False)
    aware = _search(session, aware=True)
    found = Eigenvalues(
        values=[pair.value for pair in plain.largest],
        residuals=_residuals(plain, session),
        converged=plain.converged,
        each_converged=[pair.converged for pair in plain.largest],
        steps=plain.steps,
        note=plain.note,
        weighted_values=[pair.value for pair in aware.largest],
        weighted_residuals=_residuals(aware, session),
        weighted_converged=aware.converged,
        weighted_steps=aware.steps,
        weighted_note=aware.note,
    )
    arrays = {
        "eigenvalues": as_array(found.values),
        "eigenvalues_residual": as_array(found.residuals),
        "weighted_eigenvalues": as_array(found.weighted_values),
        "weighted_eigenvalues_residual": as_array(found.weighted_residuals),
    }
    more = f"more steps: --steps {2 * session.config.steps}"
    warnings = [
        f"{what} have not converged: {pairs.note}; {more}"
        for what, pairs in (("eigenvalues", plain), ("weighted eigenvalues", aware))
        if not pairs.converged
    ]
    top = ", ".join(f"{value:.4g}" for value in found.values)
    weighted = f"weighted {found.weighted_values[0]:.4g}" if found.weighted_values else "no weighted one"
    return Outcome(found, arrays, f"{top}; {weighted}", warnings)


def _residuals(pairs: Eigenpairs, session: Session) -> list[float]:
    """As the recursion tells them, but never below what rounding adds to a product with the Hessian."""
    floor = 10 * torch.finfo(session.space.dtype).eps * pairs.norm  # a large negative eigenvalue is not listed
    return [max(pair.residual, floor) for pair in pairs.largest]


def _search(session: Session, *, aware: bool) -> Eigenpairs:
    config, work = session.config, session.work
    name = "weighted-eigenvalues" if aware else "eigenvalues"
    # An eigenvalue that repeats exactly is listed once: looking for copies costs as many products again, and the
    # Hessian of a network at generic weights has none.
    wanted = Wanted(
        largest=1 if aware else config.top,
        tol=config.tolerance,
        max_steps=config.steps,
        seed=config.seed,
        repeats=False,
    )
    path = work.parts / f"{name}.lanczos"
    rows = work.from_rank_zero(lambda: LanczosStore.read(path, session.space.size, session.space.dtype))
    store = LanczosStore(path, rows, writes=work.rank == 0)
    search = Lanczos(session.operator(aware=aware), session.space, wanted, store)
    for step in search.steps():
        label = "weighted: " if aware else ""
        shown = f"{label}largest {step.largest[0]:.4g}, residual {step.worst:.1e}"
        work.tell("eigenvalues", step.number, config.steps, "products", shown)
    return search.result()


def trace(session: Session) -> Outcome:
    """tr H and sum_i w_i^2 H_ii, each with its 95 % interval."""
    plain = _probe(session, aware=False)
    aware = _probe(session, aware=True)
    found = Trace(
        value=plain.mean,
        error=finite(plain.standard_error),
        half_width=finite(plain.half_width),
        probes=plain.probes,
        converged=plain.converged,
        weighted_value=aware.mean,
        weighted_error=finite(aware.standard_error),
        weighted_half_width=finite(aware.half_width),
        weighted_probes=aware.probes,
        weighted_converged=aware.converged,
    )
    arrays = {"trace_samples": as_array(plain.samples), "weighted_trace_samples": as_array(aware.samples)}
    warnings = [
        f"{what}: after {one.probes} probes the 95 % interval reaches {_share(one)} of the value to either side, "
        f"more than the {196 * TRACE_ERROR:g} % aimed at; --probes {4 * one.probes} halves it"
        for what, one in (("trace", plain), ("weighted trace", aware))
        if not one.converged
    ]
    summary = f"{_shown(plain)}; weighted {_shown(aware)}"
    return Outcome(found, arrays, summary, warnings)


def _share(one: Estimate) -> str:
    return f"{100 * one.half_width / abs(one.mean):.2g} %" if one.mean else "more than all"


def _shown(one: Estimate) -> str:
    return f"{one.mean:.4g} ± {one.half_width:.2g} (95 %)"


def _probe(session: Session, *, aware: bool) -> Estimate:
    config = session.config
    name = "weighted-trace" if aware else "trace"
    kept = entries(session.work, name)
    done = list(_numbered(kept))
    probing = Probing(relative_error=TRACE_ERROR, max_probes=config.probes, seed=config.seed)
    found = None
    for found in probes(session.operator(aware=aware), session.space, probing, done):
        if found.probes > len(done):
            kept.add(str(found.probes - 1), found.samples[-1])
        label = "weighted: " if aware else ""
        session.work.tell("trace", found.probes, config.probes, "probes", label + _shown(found))
    assert found is not None  # the least number of probes is above 0
    return found


def _numbered(kept: Entries) -> Iterator[float]:
    number = 0
    while str(number) in kept:
        yield float(kept[str(number)])
        number += 1


def density(session: Session) -> Outcome:
    """The density of eigenvalues."""
    config = session.config
    kept = entries(session.work, "density")
    found: list[Quadrature] = []
    while str(len(found)) in kept:
        nodes, weights = kept[str(len(found))]
        found.append(Quadrature(as_array(nodes), as_array(weights)))
    count, before, products = config.density_probes, len(found), 0
    apply = session.operator(aware=False)

    def counted(vector: Tensor) -> Tensor:
        nonlocal products
        products += 1
        done = before * config.density_steps + products
        session.work.tell("density", done, count * config.density_steps, "products")
        return apply(vector)

    more = quadratures(
        counted,
        session.space,
        steps=min(config.density_steps, session.space.size),
        probes=count,
        seed=config.seed,
        first=len(found),
    )
    for one in more if len(found) < count else ():
        kept.add(str(len(found)), [one.nodes.tolist(), one.weights.tolist()])
        found.append(one)
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
