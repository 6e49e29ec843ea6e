"""Searches the differences of ranks for the first state that is too far off."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from paceline.records.parity import Divergence, ParityStep
from paceline.verify.states import Difference

Pairs = list[tuple[int, str, list[Difference]]]
"""A rank, what it is compared with, and how far it is off at each step."""


@dataclass(frozen=True)
class Found:
    """The first state that is too far off, and everything else."""

    first: Divergence | None
    gradients: Divergence | None
    tensors: dict[str, float]
    worst: float

    @property
    def any_parameter(self) -> bool:
        """True if a parameter was compared: counters of an optimizer prove nothing."""
        return any(name.startswith("parameter:") for name in self.tensors)


def look(pairs: Pairs, tolerance: float) -> Found:
    """Search ranks' differences: states decide, gradients explain."""
    tensors: dict[str, float] = {}
    first: Divergence | None = None
    gradients: Divergence | None = None
    for rank, against, found in pairs:
        for each in found:
            off = each.found.first_off(tolerance)
            if each.what == "state":
                for name, value in each.found.relative.items():
                    tensors[name] = max(tensors.get(name, 0.0), value)
            if off is None:
                continue
            tensor, relative = off
            divergence = Divergence(
                step=each.step,
                what=each.what,
                tensor=tensor,
                relative=relative,
                rank=rank,
                against=against,
                factor=each.found.factor,
            )
            if each.what == "gradients":
                if gradients is None or divergence.step < gradients.step:
                    gradients = divergence
            elif each.what == "state" and (first is None or divergence.step < first.step):
                first = divergence
    return Found(first, gradients, tensors, max(tensors.values(), default=0.0))


def alone(pairs: Pairs) -> list[str]:
    """Tensors that only one of the runs has."""
    names = {
        name
        for _, _, found in pairs
        for each in found
        if each.what == "state"
        for name in (*each.found.missing, *each.found.extra)
    }
    shown = ", ".join(sorted(names)[:3])
    return [f"{len(names)} tensors that only one of the runs has: {shown}"] if names else []


def meet_again(among: Pairs, tolerance: float) -> list[str]:
    """Notes that ranks hold different parameters for some steps and the same ones later: local SGD."""
    for _, _, found in among:
        differ = False
        for each in (one for one in found if one.what == "state"):
            worst = max(
                (value for name, value in each.found.relative.items() if name.startswith("parameter:")), default=0
            )
            if differ and worst <= tolerance:
                return [f"ranks hold different parameters until step {each.step}: they average them now and then"]
            differ |= worst > tolerance
    return []


def with_factor(found: Found) -> Divergence | None:
    """The first state that differs, with the factor of the gradients that led to it."""
    first, gradients = found.first, found.gradients
    if first is None or gradients is None or gradients.step > first.step:
        return first
    return msgspec.structs.replace(first, factor=gradients.factor)


def with_place(first: Divergence | None, lines: list[ParityStep]) -> Divergence | None:
    """The same divergence, with the line of the optimizer's step."""
    if first is None:
        return None
    place = next((each.place for each in lines if each.step >= first.step and each.place), None)
    if place is None:
        return first
    return msgspec.structs.replace(first, path=place.path, line=place.line)
