"""Replicas of a model: where their parameters diverge, and which differences are legal.

Data parallelism keeps one copy of the parameters a rank, and all copies equal. Evidence is a difference of parameters
after an optimizer step. A difference of gradients alone is none: an optimizer may reduce them inside its step.

Legal differences: parameters that the script averages from time to time (local SGD), parameters that a wrapper shards
(FSDP), parts of a model that several process groups hold, and what a rank loads after the last step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paceline.audits.divergence import Difference, Divergence, instant
from paceline.audits.wording import ranks_text, when_text
from paceline.records.event import Event
from paceline.records.observed import Collective, Fingerprint
from paceline.records.observed_rank import GroupMade, ModelWrapped, ObservedStep, ScriptEnded, StateRestored

_SHARDS = ("fsdp", "shard")
_LOCAL_HOOKS = ("local", "noop")
"""Parts of the names of communication hooks that do not average over all ranks, as `post_localSGD_hook`."""
Names = Callable[[str], bool]
"""Which tensors count, by name."""


def any_name(name: str) -> bool:
    """Every tensor."""
    return bool(name)


def of_wrapped(name: str) -> bool:
    """True if a tensor's name is that of a wrapped model: `fc.weight`, `1/fc.weight`, but not `Loss/weight`."""
    prefix, slash, _ = name.partition("/")
    return not slash or prefix.isdigit()


def among(names: list[str]) -> Names:
    """Tensors that an event lists; a name without the prefix of its model stands for that of any model."""
    listed = set(names)
    return lambda name: name in listed or name.rpartition("/")[2] in listed


class Replicas:
    """Compares the ranks' parameters and gradients, and knows what excuses a difference.

    Attributes:
        models: wrapped models by number and rank.
        groups: default process groups by rank.
        reached: the last recorded step of each rank.
        ended: ranks that ended in order.
        reduced_by_hand: the script reduces gradients itself.
        averaged: the script averages parameters between steps.
    """

    def __init__(self) -> None:
        self.models: dict[int, dict[int, ModelWrapped]] = defaultdict(dict)
        self.groups: dict[int, GroupMade] = {}
        self.reached: dict[int, int] = {}
        self.ended: set[int] = set()
        self.reduced_by_hand = False
        self.averaged = False
        self._world = 0
        self._divergence = Divergence()
        self._named: set[str] = set()
        self._fingerprinted: set[int] = set()
        self._restored_at: set[int] = set()

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take an event of a rank."""
        self._world = world
        if isinstance(event, Fingerprint):
            self._fingerprinted.add(rank)
            if event.moment != "gradients":
                self._named.update(name for name in event.digests if name.startswith("parameter:"))
            if event.moment != "evaluation":  # a rank may swap weights for an evaluation
                self._divergence.feed(rank, event, world)
        elif isinstance(event, ObservedStep):
            self.reached[rank] = max(event.step, self.reached.get(rank, 0))
            self.reduced_by_hand |= event.own_reductions > 0
            self.averaged |= event.own_averages > 0 and event.step > 1  # before step 1: the initial broadcast
        elif isinstance(event, Collective):
            by_script = not event.by_backward
            self.reduced_by_hand |= event.on == "gradients" and by_script
            self.averaged |= event.on == "parameters" and "reduce" in event.op and bool(event.step)
        elif isinstance(event, ModelWrapped):
            self.models[event.number][rank] = event
        elif isinstance(event, GroupMade):
            self.groups[rank] = event
        elif isinstance(event, StateRestored) and event.what == "model":
            self._restored_at.add(event.step)
        elif isinstance(event, ScriptEnded):
            self.ended.add(rank)

    @property
    def compared(self) -> list[tuple[int, str]]:
        """Instants at which all ranks were compared, as (step, moment), in order of time."""
        return self._divergence.compared

    @property
    def unobserved(self) -> bool:
        """All ranks took two steps, and none left a fingerprint: there is no evidence for or against a difference."""
        return (
            self._world > 1
            and not self._fingerprinted
            and all(self.reached.get(rank, 0) >= 2 for rank in range(self._world))
        )

    @property
    def on_purpose(self) -> bool:
        """The replicas may differ between steps: they are averaged now and then."""
        hooks = (str(each.options.get("comm_hook") or "").lower() for each in self._wrapped())
        return self.averaged or any(word in hook for hook in hooks for word in _LOCAL_HOOKS)

    @property
    def in_parts(self) -> bool:
        """A wrapped model's process group is smaller than the job: ranks hold different parts, or different models."""
        return any(0 < each.group < self._world for each in self._wrapped())

    def never_compared_after(self, step: int) -> bool:
        """All ranks trained on after a step, and their parameters have not been compared since and will not be."""
        later = any(at > step and moment in ("state", "end") for at, moment in self.compared)
        trained_on = all(self.reached.get(rank, 0) > step for rank in range(self._world))
        over = len(self.ended) == self._world > 1 or self.unobserved
        return trained_on and over and not later and not self.on_purpose

    def covers(self, names: list[str]) -> bool:
        """True if fingerprints that were compared after a step have all these parameters."""
        named = {name.removeprefix("parameter:") for name in self._named}
        named |= {name.rpartition("/")[2] for name in named}
        return any(moment in ("state", "end") for _, moment in self.compared) and named.issuperset(names)

    def differences(self, kind: str, names: Names = any_name) -> list[Difference]:
        """Differences of a kind in tensors that should be equal, in order of time."""
        if self.in_parts:
            return []
        sharded = any(part in each.wrapper.lower() for each in self._wrapped() for part in _SHARDS)
        found = []
        for each in self._divergence.differences:
            if each.kind == kind:
                kept = [name for name in each.names if names(name) and not (sharded and of_wrapped(name))]
                found += [replace(each, names=kept)] if kept else []
        return found

    def first(self, names: Names = any_name) -> Difference | None:
        """The first difference of parameters that nothing excuses.

        Where parameters were never compared after a step, gradients that differ at two steps stand for them.
        """
        if self.on_purpose:
            return None
        found = [each for each in self.differences("parameter", names) if self._counts(each)]
        if found:
            return None if self._equal_again(found) else found[0]
        gradients = self.differences("gradient", names)
        if len(gradients) > 1 and not self._states_from(gradients[0].step):
            return gradients[0]
        return None

    def gradients(self, names: Names = any_name) -> Difference | None:
        """The gradients that came with, or led to, the first difference of parameters."""
        first = self.first(names)
        found = self.differences("gradient", names)
        return found[0] if first and found and found[0].step <= max(first.step, 1) else None

    def since(self, step: int, names: Names = any_name, *, at_start: bool = False) -> Difference | None:
        """The first difference of parameters, where it can be the effect of something that happened at a step.

        Args:
            step: what happened there cannot explain an earlier difference.
            names: tensors that count.
            at_start: it happened before the first step, so that parameters may differ there already.
        """
        first, gradients = self.first(names), self.gradients(names)
        if first is None or first.step < step or (first.moment == "start" and not at_start):
            return None
        if gradients is not None and gradients.step < step:
            return None
        if first.moment == "end" and self._states_from(step):
            return None
        return first

    def _wrapped(self) -> list[ModelWrapped]:
        return [each for ranks in self.models.values() for each in ranks.values()]

    def _states_from(self, step: int) -> list[tuple[int, str]]:
        return [at for at in self.compared if at[1] == "state" and at[0] >= step]

    def _counts(self, difference: Difference) -> bool:
        """Not what ranks did to their parameters for an evaluation, or after the last step."""
        if difference.moment == "end":
            return difference.step not in self._restored_at and (difference.step, "state") not in self.compared
        return difference.moment in ("start", "state")

    def _equal_again(self, found: list[Difference]) -> bool:
        differing = {(each.step, each.moment) for each in found}
        later = [at for at in self.compared if instant(*at) > found[0].instant and at[1] in ("state", "end")]
        return sum(at not in differing for at in later) >= 2


def effect(difference: Difference) -> str:
    """`rank 1 holds different values of fc1.weight and 5 more after step 1`."""
    if difference.kind == "gradient":
        return f"the gradients of step {difference.step} differ between ranks: {difference.text}"
    holds = "holds" if len(difference.ranks) == 1 else "hold"
    what = "different optimizer state for" if difference.kind == "optimizer" else "different values of"
    when = "at the end of the run" if difference.moment == "end" else when_text(difference.step)
    return f"{ranks_text(difference.ranks)} {holds} {what} {difference.text} {when}"


def evidence(difference: Difference | None) -> dict[str, Any]:
    """Return the evidence of a difference for a finding."""
    if difference is None:
        return {}
    return {
        "tensors": difference.names[:20],
        "differing": len(difference.names),
        "compared": difference.compared,
        "ranks": difference.ranks,
        "moment": difference.moment,
    }
