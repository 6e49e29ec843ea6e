"""From what was found to a verdict, its reason and the ids of faults that look like it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from paceline.records.parity import Divergence, ParityResult
from paceline.verify.divergence import Found
from paceline.verify.explanation import Explanation, unsynchronized

TOLERANCES = {"float64": 1e-9, "float32": 1e-4}
"""Relative difference of a tensor; right trainings differ by 1e-14 in float64, faults by 1e-6 and more."""

_MOST = 4
"""Faults that a result names."""


@dataclass(frozen=True)
class Circumstances:
    """Further facts that a verdict depends on.

    Attributes:
        own: why the method itself gives another result on several ranks.
        notes: what keeps the runs from being comparable.
        apart: the first difference of ranks among themselves.
        uneven: one process takes another number of steps.
        floor: difference of two orders of summation.
        closure: an optimizer evaluates the loss within its step.
        explain: why ranks differ from one process; may start further runs.
    """

    own: list[str]
    notes: list[str]
    apart: Divergence | None
    uneven: bool
    floor: float
    closure: bool
    explain: Callable[[], Explanation]


def give_verdict(result: ParityResult, found: Found, around: Circumstances) -> ParityResult:
    """Put the verdict, its reason and fault ids into a result."""
    steps, world = result.compared.steps if result.compared else 0, result.world
    left = [*result.not_compared, *around.notes]
    if found.first is None and (not found.any_parameter or around.uneven):
        return _not_judged(result, around.notes[0], left)
    if found.first is None:
        scaled = _scaled_rates(result)
        reason = f"{world} ranks and one process compute the same for {steps} steps{scaled}"
        result = msgspec.structs.replace(result, reason=reason, not_compared=left)
        return with_audits(result, "the mathematics agrees, but")
    if around.own:
        return _not_judged(result, around.own[0], left)
    if around.apart is not None and around.apart.tensor.startswith("parameter:"):
        return _failed(result, unsynchronized(around.apart, closure=around.closure))  # whatever one process does
    if around.notes:
        return _not_judged(result, around.notes[0], left)
    if around.floor > TOLERANCES["float32"]:
        reason = f"one process computes something else where batches are joined in another order, by {around.floor:.1e}"
        return _not_judged(result, reason, left)
    if around.apart is not None:
        return _failed(result, unsynchronized(around.apart, closure=around.closure))
    why = around.explain()
    return _not_judged(result, why.text, left) if why.nature else _failed(result, why)


def with_audits(result: ParityResult, before: str) -> ParityResult:
    """The same result, which fails where an audit of the unchanged run found an error.

    A process that is aborted at its exit has done its work.
    """
    errors = [each for each in result.findings if each.severity == "error" and not each.evidence.get("finished")]
    if not errors:
        return result
    reason = f"{before} an audit found an error: {errors[0].message}"
    return msgspec.structs.replace(result, verdict="fail", reason=reason, faults=named(result))


def _not_judged(result: ParityResult, reason: str, left: list[str]) -> ParityResult:
    result = msgspec.structs.replace(result, verdict="inconclusive", reason=reason, not_compared=left)
    return with_audits(result, f"{reason};")


def _failed(result: ParityResult, why: Explanation) -> ParityResult:
    faults = list(dict.fromkeys([*named(result), *why.faults]))[:_MOST]
    return msgspec.structs.replace(result, verdict="fail", reason=why.text, faults=faults)


def named(result: ParityResult) -> list[str]:
    """Faults that audits name: those of errors first."""
    alarms = [each for kind in ("error", "warning") for each in result.findings if each.severity == kind]
    return list(dict.fromkeys(fault for each in alarms for fault in each.faults))[:_MOST]


def _scaled_rates(result: ParityResult) -> str:
    pairs = zip(result.learning_rates, result.learning_rates_of_one, strict=False)
    ratios = {round(ranks / one, 6) for ranks, one in pairs if one}
    if ratios <= {1.0}:
        return ""
    low, high = min(ratios), max(ratios)
    text = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f", with learning rates that are {text} times those of one process"
