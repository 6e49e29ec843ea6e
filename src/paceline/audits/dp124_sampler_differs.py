"""Samplers of ranks do not fit together.

What it finds:
    A DistributedSampler whose seed, epoch or number of replicas differs between ranks, two ranks with the same shard,
    or fewer shards than ranks.

Why it matters:
    Each rank takes its part of another permutation, so some samples are read twice in an epoch and others never.

Repair:
    The same seed and the same `set_epoch(epoch)` on all ranks; leave `num_replicas` and `rank` to the process group.

Known problems:
    None.

References:
    F09. https://github.com/yangkky/distributed_tutorial/issues/5
"""

from __future__ import annotations

from typing import Any

from paceline.audits.across_ranks import differing
from paceline.audits.audit import Audit
from paceline.audits.index_set import shared, union
from paceline.audits.loader_passes import SharedPass, replicas_of, same_data
from paceline.audits.wording import count_text, ranks_text
from paceline.records.observed_rank import LoaderBegun
from paceline.records.schema import Finding

_ORDER = ("seed", "epoch")
"""Decide on the permutation; they matter where the sampler shuffles."""
_ADVICE = {
    "seed": "give the DistributedSampler the same seed on all ranks",
    "epoch": "call set_epoch with the same epoch on all ranks",
    "shuffle": "give the DistributedSampler the same shuffle on all ranks",
    "rank": "leave num_replicas and rank of the DistributedSampler to the process group",
    "num_replicas": "leave num_replicas and rank of the DistributedSampler to the process group",
}


class SamplerDiffers(Audit):
    """Compares the samplers of all ranks at the beginning of each pass."""

    code, name, topic = "DP124", "sampler-differs", "data"
    faults = ("F09",)
    needs = ("loaders",)

    def findings(self) -> list[Finding]:
        """At most one, for the first pass whose samplers do not fit together."""
        if self.run.parallel.partly:
            return []
        complete = {_key(each.begun): each for each in self.run.passes.shared()}
        for begun in self.run.passes.begun():
            if not all(one.sampler_facts for one in begun.values()) or same_data(begun.values()) is False:
                continue
            key = _differing(begun, self.world)
            if key is None and self._copies(begun, complete.get(_key(begun))):
                key = "num_replicas"
            if key is not None:
                return [self._found(key, begun, complete.get(_key(begun)))]
        return []

    def looked_at(self) -> str:
        passes = sum(1 for begun in self.run.passes.begun() if all(one.sampler_facts for one in begun.values()))
        return f"samplers of {passes} passes" if passes else ""

    def _copies(self, begun: dict[int, LoaderBegun], each: SharedPass | None) -> bool:
        """Ranks train on whole batches of a sampler that has fewer shards than there are ranks."""
        fewer = all(0 < replicas_of(one) < self.world for one in begun.values())
        if each is None or not each.training or not fewer or not self.run.parallel.everywhere:
            return False
        if len({one.subset for one in begun.values()}) > 1:  # each rank has a part of its own
            return False
        return same_data(begun.values()) is True and self.run.slices.whole(each) is True

    def _found(self, key: str, begun: dict[int, LoaderBegun], each: SharedPass | None) -> Finding:
        values = {rank: one.sampler_facts.get(key) for rank, one in begun.items()}
        base, *others = values
        ranks = differing(values)
        if key == "rank":
            ranks = [rank for rank in others if list(values.values()).count(values[rank]) > 1]
            what = f"{ranks_text([rank for rank in values if values[rank] == values[ranks[0]]])} read the same shard"
        elif ranks:
            what = f"the sampler has {key} {values[base]} on rank {base} and {values[ranks[0]]} on {ranks_text(ranks)}"
        else:
            ranks = others
            what = f"the sampler makes {count_text(int(values[base] or 0), 'shard')} for {self.world} ranks"
        counted, evidence = _counted(each)
        first = begun[ranks[0]]
        return self.finding(
            "error",
            f"{what}; {counted or 'some samples are read twice in an epoch, others never'}",
            _ADVICE[key],
            place=first.place,
            rank=ranks[0],
            step=first.step,
            differs=key,
            values={str(rank): value for rank, value in values.items()},
            **evidence,
        )


def _key(begun: dict[int, LoaderBegun]) -> tuple[tuple[int, int, int], ...]:
    return tuple((rank, one.loader, one.number) for rank, one in sorted(begun.items()))


def _differing(begun: dict[int, LoaderBegun], world: int) -> str | None:
    """Return settings that differ between ranks, of samplers that are made for all ranks of the job."""
    facts = [one.sampler_facts for one in begun.values()]
    if not any(one.get("num_replicas") == world for one in facts):
        return None
    for key in ("num_replicas", "shuffle"):
        if len({one.get(key) for one in facts}) > 1:
            return key
    if len({one.get("rank") for one in facts}) < len(facts):
        return "rank"
    if not facts[0].get("shuffle"):
        return None
    return next((key for key in _ORDER if len({one.get(key) for one in facts}) > 1), None)


def _counted(each: SharedPass | None) -> tuple[str, dict[str, Any]]:
    """Count samples of the pass in the ledger: those that two ranks read, and those that none did."""
    bits = each.bits if each is not None and each.exhausted else None
    samples = each.first.root_samples if each is not None else None
    if bits is None or not samples or each is None or each.first.subset is not None:
        return "", {}
    twice, never = shared(bits.values()).bit_count(), samples - union(bits.values()).bit_count()
    text = f"in one pass {twice} of {samples} samples are read by several ranks and {never} by none"
    return text, {"read_twice": twice, "never_read": never}
