"""From what was found to a verdict, its reason and the ids of faults that look like it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from paceline.records.parity import Divergence, ParityResult
from paceline.verify.divergence import Found

TOLERANCES = {"float64": 1e-9, "float32": 1e-4}
"""Relative difference of a tensor; right trainings differ by 1e-14 in float64, faults by 1e-6 and more."""


@dataclass(frozen=True)
class Circumstances:
    """What else a verdict depends on.

    Attributes:
        own: why the method itself gives another result on several ranks.
        apart: the first difference of ranks among themselves.
        uneven: one process takes another number of steps.
    """

    own: list[str]
    apart: Divergence | None
    uneven: bool


def give_verdict(
    result: ParityResult, found: Found, notes: list[str], around: Circumstances, floor: float
) -> ParityResult:
    """Put the verdict, its reason and fault ids into a result."""
    change = msgspec.structs.replace
    steps, world = result.compared.steps if result.compared else 0, result.world
    left = [*result.not_compared, *notes]
    if found.first is None and (not found.any_parameter or around.uneven):
        return change(result, verdict="inconclusive", reason=notes[0], not_compared=left)
    if found.first is None:
        errors = [each for each in result.findings if each.severity == "error"]
        if errors:
            reason = f"the mathematics agrees, but an audit found an error: {errors[0].message}"
            return change(result, verdict="fail", reason=reason, faults=errors[0].faults)
        scaled = _scaled_rates(result)
        reason = f"{world} ranks and one process compute the same for {steps} steps{scaled}"
        return change(result, reason=reason, not_compared=left)
    if around.own or notes:
        return change(result, verdict="inconclusive", reason=(around.own or notes)[0], not_compared=left)
    if floor > TOLERANCES["float32"]:
        reason = f"one process computes something else where batches are joined in another order, by {floor:.1e}"
        return change(result, verdict="inconclusive", reason=reason, not_compared=left)
    reason, faults = _explain(found, result, around)
    named = [fault for each in result.findings if each.severity != "info" for fault in each.faults]
    return change(result, verdict="fail", reason=reason, faults=list(dict.fromkeys([*named, *faults]))[:4])


def _explain(found: Found, result: ParityResult, around: Circumstances) -> tuple[str, list[str]]:
    """In words, with the ids of faults that look like this."""
    first, gradients, world = found.first, found.gradients, result.world
    assert first is not None
    if around.apart is not None:
        apart = around.apart
        text = f"{apart.tensor} of rank {apart.rank} differs from {apart.against} by {apart.relative:.1e}"
        return f"ranks are not synchronized: at step {apart.step} {text}", []
    where = f"{first.tensor} of rank {first.rank} differs from {first.against} by {first.relative:.1e}"
    text = f"at step {first.step} {where}"
    if gradients is None or gradients.step > first.step:
        return f"{text}, though gradients agree", ["F36"]
    factor = gradients.factor
    if factor is not None and abs(factor - 1 / world) < 1e-6:
        return f"{text}: gradients are 1/{world} of those of one process (1/world size)", ["F23", "F129"]
    if factor is not None and abs(factor - world) < 1e-6:
        return f"{text}: gradients are {world} times those of one process (the world size)", ["F24", "F129"]
    if factor is not None:
        return f"{text}: gradients are {factor:.3f} times those of one process", ["F27"]
    return f"{text}: the mean over ranks is not the mean over all samples", ["F22", "F31"]


def _scaled_rates(result: ParityResult) -> str:
    pairs = zip(result.learning_rates, result.learning_rates_of_one, strict=False)
    ratios = {round(ranks / one, 6) for ranks, one in pairs if one}
    if ratios <= {1.0}:
        return ""
    low, high = min(ratios), max(ratios)
    text = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f", with learning rates that are {text} times those of one process"
