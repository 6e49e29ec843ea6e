"""Some ranks restored a state that the others did not.

What it finds:
    `load_state_dict` of a wrapped model, or of an optimizer, on some ranks only, after which that state differs and
    training goes on.

Why it matters:
    DDP broadcasts parameters in its constructor and never again. Ranks that did not load go on from other weights, or
    with another momentum, and apply the same gradients to different models.

Repair:
    Load on every rank: `torch.load(path, map_location=...)` and `load_state_dict` outside of the test for rank 0, or
    load the model before it is wrapped.

Known problems:
    A model that rank 0 loads after the last step, to evaluate or to save it, is left alone.

References:
    F95. https://github.com/facebookresearch/detr/issues/235
"""

from __future__ import annotations

from collections import defaultdict

from paceline.audits.audit import ReplicaAudit
from paceline.audits.divergence import Difference
from paceline.audits.replicas import effect, evidence, of_wrapped
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text, when_text
from paceline.records.event import Event
from paceline.records.observed_rank import StateRestored
from paceline.records.schema import Finding


class StateRestoredOnSomeRanks(ReplicaAudit):
    """Compares which ranks restored what at which step."""

    code, name, topic = "DP109", "state-restored-on-some-ranks", "replicas"
    faults = ("F95",)
    needs = ("restores", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._restored: dict[tuple[int, str, str], dict[int, StateRestored]] = defaultdict(dict)

    def feed(self, rank: int, event: Event) -> None:
        """Note what is restored where it matters: optimizers, and models that were wrapped before."""
        if isinstance(event, StateRestored) and (event.after_wrap or event.what == "optimizer"):
            self._restored[event.step, event.what, event.name].setdefault(rank, event)

    def findings(self) -> list[Finding]:
        """At most one, for the first restore that only some ranks did and that left a difference."""
        for (step, what, _), ranks in sorted(self._restored.items()):
            trained_on = all(self.replicas.reached.get(rank, 0) > step for rank in range(self.world))
            if len(ranks) == self.world or not trained_on:
                continue
            difference = self._difference(step, what)
            if difference is not None:
                return [self._found(ranks, difference)]
            if self.replicas.unobserved and not self.replicas.on_purpose:
                return [self._found(ranks, None)]
        return []

    def _difference(self, step: int, what: str) -> Difference | None:
        parameters = self.replicas.since(step, of_wrapped, at_start=step == 0)
        if what == "model":
            return parameters
        states = [each for each in self.replicas.differences("optimizer") if each.moment in ("start", "state", "end")]
        return states[0] if states and states[0].step >= step else parameters

    def _found(self, ranks: dict[int, StateRestored], difference: Difference | None) -> Finding:
        first = ranks[min(ranks)]
        shown = f"; {effect(difference)}" if difference else "; the other ranks train on from another state"
        return self.finding(
            "error" if difference else "warning",
            f"only {ranks_text(ranks)} restored the {first.what} ({first.name}) {when_text(first.step)}{shown}",
            f"call {first.what}.load_state_dict() on every rank"
            + (", or before DDP(model), which broadcasts rank 0's" if first.what == "model" else ""),
            place=first.place,
            rank=min(ranks),
            step=first.step,
            restored_on=sorted(ranks),
            **evidence(difference),
        )
