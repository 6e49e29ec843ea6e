"""Why gradients differ, in words, with ids of faults as far as the numbers of a run tell them apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.records.parity import Divergence, ParityStep
from paceline.verify.divergence import Found
from paceline.verify.states import State

_EXACT = 1e-6
"""Gradients agree when so small a part is left over."""


@dataclass(frozen=True)
class Explanation:
    """The reason why ranks and one process differ.

    Attributes:
        text: in words.
        faults: ids of faults that the evidence supports, at most two.
        nature: no fault: the method depends on how samples are batched.
    """

    text: str
    faults: tuple[str, ...] = ()
    nature: bool = False


@dataclass(frozen=True)
class Taken:
    """Gradients that an optimizer receives at a step.

    Attributes:
        gradients: as they are before clipping.
        loss: where the last backward pass began.
    """

    gradients: State
    loss: float | None


@dataclass(frozen=True)
class Facts:
    """Further facts of the step at which gradients differ first.

    Attributes:
        theirs: of each rank.
        ours: of one process.
        ranks: what rank 0 receives.
        one: what one process receives.
        alone: what one process receives from the batches of one rank; None where they cannot be given.
        padded: one process fills up batches to a common length.
        gathers: the script gathers tensors of other ranks during the step.
    """

    theirs: Sequence[ParityStep]
    ours: ParityStep
    ranks: Taken
    one: Taken
    alone: Callable[[int], Taken | None]
    padded: bool
    gathers: bool


def unsynchronized(apart: Divergence, *, closure: bool) -> Explanation:
    """Explain the first divergence among ranks: what they have in common, the audits know better."""
    text = f"ranks are not synchronized: at step {apart.step} {apart.tensor} of rank {apart.rank} "
    text += f"differs from {apart.against} by {apart.relative:.1e}"
    return Explanation(text, ("F36",) if closure else ())


def explain(found: Found, facts: Facts | None, *, closure: bool) -> Explanation:
    """Explain the first divergence between ranks and one process.

    Args:
        found: the divergences.
        facts: of the step at which gradients differ first; None where there are no records of it.
        closure: an optimizer evaluates the loss within its step.
    """
    first, gradients = found.first, found.gradients
    assert first is not None
    text = f"at step {first.step} {first.tensor} of rank {first.rank} differs from {first.against} by "
    text += f"{first.relative:.1e}"
    if gradients is None or gradients.step > first.step:
        if closure:
            return Explanation(f"{text}: the optimizer evaluates the loss of a rank within its step", ("F36",))
        return Explanation(f"{text}, though gradients agree")
    if facts is None:
        return Explanation(f"{text}: gradients differ")
    why = _apart(facts) if gradients.factor is None else _scaled(gradients.factor, facts)
    return Explanation(f"{text}: {why.text}", why.faults, why.nature)


def _scaled(factor: float, facts: Facts) -> Explanation:
    """Gradients are a multiple of those of one process: by hand, by the loss, or by the number of micro-batches?"""
    world, rank = len(facts.theirs), facts.theirs[0]
    if _same(factor, 1 / world):
        text = f"gradients are 1/{world} of those of one process (1/world size)"
    elif _same(factor, world):
        text = f"gradients are {world} times those of one process (the world size)"
    else:
        return Explanation(f"gradients are {factor:.3f} times those of one process")
    if _same(rank.norm, facts.ours.norm):
        return Explanation(f"{text}, and were right after the backward pass", ("F129",))
    if facts.ours.backwards == world * rank.backwards:
        return Explanation(f"{text}, which takes {world} times as many micro-batches", ("F27",) if factor < 1 else ())
    alone = facts.alone(0)
    if alone is None or alone.loss is None or facts.ranks.loss is None:
        return Explanation(text)
    if _same(facts.ranks.loss, alone.loss * factor):  # of the same samples, so the world size is in it
        return Explanation(f"{text}, by which the script scales its loss", ("F24",))
    if _same(facts.ranks.loss, alone.loss):
        return Explanation(f"{text}: the loss is a sum", ("F23",)) if factor < 1 else Explanation(text, ("F129",))
    if facts.gathers:
        return Explanation(f"{text}: gradients do not flow through the tensors that ranks gather", ("F34",))
    return Explanation(text)


def _apart(facts: Facts) -> Explanation:
    """Gradients have another direction: from which parts are they made?"""
    if any(each.early_clips for each in facts.theirs):
        return Explanation("gradients are clipped before they are complete", ("F30",))
    taken = [facts.alone(rank) for rank in range(len(facts.theirs))]
    parts, one = [each.gradients for each in taken if each is not None], facts.one.gradients
    if len(parts) < len(taken) or any(each.keys() != one.keys() for each in parts):
        return Explanation("gradients differ, by no common factor")
    if _off(facts.ranks.gradients, {name: np.mean([each[name] for each in parts], axis=0) for name in one}) > _EXACT:
        if facts.padded:
            return Explanation("the loss depends on how far batches are padded", nature=True)
        if facts.gathers:
            return Explanation("gradients do not flow through the tensors that ranks gather", ("F34", "F31"))
        return Explanation("gradients are not the mean of those that ranks have alone")
    weights, left = _weights(one, parts)
    if left > _EXACT or not _same(sum(weights), 1.0):
        return Explanation("the loss of all samples is no mean of the losses of ranks", ("F31",))
    rows = [each.samples or 0 for each in facts.theirs]
    if len(set(rows)) > 1 and np.allclose(weights, np.array(rows) / sum(rows), atol=_EXACT):
        counts = ", ".join(map(str, rows))
        return Explanation(f"ranks have {counts} samples, and count alike", ("F17", "F22"))
    shares = ", ".join(f"{weight:.3f}" for weight in weights)
    text = f"each rank takes the mean over its own items: all count alike, though they have shares of {shares}"
    return Explanation(text, ("F22",))


def _same(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=_EXACT)


def _vector(state: State, names: Sequence[str]) -> np.ndarray:
    return np.concatenate([np.ravel(state[name]) for name in names]).astype(np.float64)


def _off(ours: State, reference: State) -> float:
    names = sorted(reference)
    if any(name not in ours or ours[name].shape != np.shape(reference[name]) for name in names):
        return math.inf
    one, other = _vector(ours, names), _vector(reference, names)
    return float(np.linalg.norm(one - other) / max(float(np.linalg.norm(other)), 1e-300))


def _weights(one: State, parts: Sequence[State]) -> tuple[list[float], float]:
    """How much of each rank's gradient makes up that of one process, and what is left over."""
    names = sorted(one)
    basis, whole = np.stack([_vector(each, names) for each in parts], axis=1), _vector(one, names)
    weights = np.linalg.lstsq(basis, whole, rcond=None)[0]
    left = float(np.linalg.norm(whole - basis @ weights) / max(float(np.linalg.norm(whole)), 1e-300))
    return [float(each) for each in weights], left
