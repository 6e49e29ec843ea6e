"""Ranks draw the same random numbers.

What it finds:
    Random generators that are used during training and have the same state on all ranks, or on all ranks of each
    machine.

Why it matters:
    Dropout masks, noise and augmentations are the same on all ranks, so a batch has less variety than its size says.
    torch's own generators count where the model has dropout, or where their state changes between two steps of one pass
    over a loader: a loader draws from them itself, once a pass.

Repair:
    Build the model with a common seed, then `torch.manual_seed(seed + rank)` (and NumPy's and Python's generators)
    before training.

Known problems:
    Random numbers that ranks must share, as a permutation of the data, need equal states; the finding is of severity
    `info`. Generators within loader workers are not seen.

References:
    F64. https://github.com/huggingface/transformers/issues/31412
    F66. https://github.com/pytorch/pytorch/issues/5059
    F67. https://github.com/facebookresearch/vissl/pull/299
"""

from __future__ import annotations

import itertools
from collections import defaultdict

from paceline.audits.across_ranks import AcrossRanks
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.records.event import Event, attempt_of
from paceline.records.observed import Fingerprint
from paceline.records.observed_rank import LoaderBegun
from paceline.records.schema import Finding

_PREFIX = "random:"
_LEAST = 2
_MASKS = ("torch", "cuda")
"""Generators that dropout draws from."""
_NAMES = {"torch": "torch", "cuda": "CUDA", "numpy": "NumPy", "python": "Python"}


class SameRandomState(Audit):
    """Compares the random states of all ranks after equal steps."""

    code, name, topic = "DP130", "same-random-state", "data"
    faults = ("F64", "F66", "F67")
    needs = ("fingerprints",)

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._prints: AcrossRanks[dict[str, str]] = AcrossRanks()
        self._states: dict[str, dict[int, dict[int, str]]] = defaultdict(dict)
        """By generator and step, the digest on each rank."""
        self._begun: set[int] = set()
        """Steps after which a rank began a pass over a loader."""

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, LoaderBegun):
            self._begun.add(event.step)
        if not isinstance(event, Fingerprint) or event.moment != "state":
            return
        states = {name: value for name, value in event.digests.items() if name.startswith(_PREFIX)}
        ranks = self._prints.add((attempt_of(event), event.step), rank, states, self.world)
        if ranks is None or self.world < 2:
            return
        for name in set.intersection(*(set(each) for each in ranks.values())):
            self._states[name.removeprefix(_PREFIX)][event.step] = {rank: each[name] for rank, each in ranks.items()}

    def findings(self) -> list[Finding]:
        """At most one, for all generators together."""
        if self.run.parallel.partly:
            return []
        everywhere = [name for name in sorted(self._states) if self._matters(name) and self._same(name, per_host=False)]
        if everywhere:
            faults = ("F64",) * any(map(_is_mask, everywhere)) + ("F66",) * (not all(map(_is_mask, everywhere)))
            return [self._found(everywhere, "all ranks", "seed + rank", faults)]
        per_host = [name for name in sorted(self._states) if self._matters(name) and self._same(name, per_host=True)]
        if per_host:
            return [self._found(per_host, "all ranks of a machine", "seed + global rank", ("F67",))]
        return []

    def looked_at(self) -> str:
        steps = {step for states in self._states.values() for step in states}
        return f"random states after {len(steps)} steps" if steps else ""

    def _matters(self, name: str) -> bool:
        return not _is_mask(name) or self.run.parallel.dropout > 0 or self._drawn_in_a_pass(name)

    def _drawn_in_a_pass(self, name: str) -> bool:
        """The state of the first rank changed between steps of one pass over a loader."""
        states = {step: ranks[min(ranks)] for step, ranks in self._states[name].items()}
        return any(
            states[before] != states[after]
            and min(self._begun, default=after) < before
            and not any(before <= step <= after for step in self._begun)
            for before, after in itertools.pairwise(sorted(states))
        )

    def _same(self, name: str, *, per_host: bool) -> bool:
        """Equal at all compared steps, and used between them."""
        states = self._states[name]
        changed = len({each[min(each)] for each in states.values()}) == len(states)
        if len(states) < _LEAST or not changed:
            return False
        if not per_host:
            return all(len(set(each.values())) == 1 for each in states.values())
        return all(self._one_per_host(each) for each in states.values())

    def _one_per_host(self, ranks: dict[int, str]) -> bool:
        """Two ranks or more on every host, all with the state of their host and of no other."""
        hosts: dict[str, list[str]] = defaultdict(list)
        for rank, state in ranks.items():
            hosts[self.run.files.hosts.get(rank, f"rank {rank}")].append(state)
        several = len(hosts) > 1 and all(len(each) > 1 for each in hosts.values())
        return (
            several and all(len(set(each)) == 1 for each in hosts.values()) and len(set(ranks.values())) == len(hosts)
        )

    def _found(self, names: list[str], who: str, seed: str, faults: tuple[str, ...]) -> Finding:
        steps = sorted(self._states[names[0]])
        generators = " and ".join(_NAMES.get(name, name) for name in names)
        effect = ""
        if any(map(_is_mask, names)):
            layers = self.run.parallel.dropout
            effect = f"; dropout masks are the same ({layers} layers)" if layers else "; training steps draw from it"
        return self.finding(
            "info",
            f"{who} have the same random state of {generators} after steps {steps[0]} to {steps[-1]}{effect}",
            f"call torch.manual_seed({seed}) before training if random numbers should differ between ranks",
            faults=faults,
            rank=1,
            step=steps[0],
            generators=names,
            steps=steps,
        )


def _is_mask(name: str) -> bool:
    return name.startswith(_MASKS)
