"""The evaluation counts samples twice, or leaves some out.

What it finds:
    An evaluation that is sharded over ranks and in which some samples count more often than others, since the
    sampler repeats samples to give all ranks the same number; or in which the last samples are dropped.

Why it matters:
    The metric is that of another data set, and it changes with the number of ranks.

Repair:
    Shard without padding, `Subset(dataset, range(rank, len(dataset), world))`, and reduce sums and counts; or gather
    the predictions and trim them to `len(dataset)`.

Known problems:
    A script that masks the repeated samples itself is reported unless it gathers predictions.

References:
    F70. https://github.com/pytorch/pytorch/issues/25162
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.index_set import bits_of, first_of, shared, union
from paceline.audits.loader_passes import TORCH_SAMPLERS, SharedPass, same_data
from paceline.records.schema import Finding

_ADVICE = (
    "shard without padding, Subset(dataset, range(rank, len(dataset), world)), and reduce sums and counts over ranks"
)


class PaddedEvaluation(Audit):
    """Counts how often an evaluation reads each sample, over all ranks."""

    code, name, topic = "DP141", "padded-evaluation", "evaluation"
    faults = ("F70",)
    needs = ("loaders", "collectives")

    def findings(self) -> list[Finding]:
        """At most one of repeated samples and one of dropped ones."""
        passes = self._evaluations()
        repeated = (self._repeated(each) for each in passes)
        found = [one for one in repeated if one is not None][:1]
        if len(self.run.replicas.ended) < self.world:
            return found  # further evaluations may read what this one drops
        dropped = (self._dropped(each, passes) for each in passes)
        return found + [one for one in dropped if one is not None][:1]

    def looked_at(self) -> str:
        passes = len(self._evaluations())
        return f"samples of {passes} evaluation passes" if passes else ""

    def _evaluations(self) -> list[SharedPass]:
        """By torch's own loader, on one data set; frameworks trim what they gather."""
        return [
            each
            for each in self.run.passes.shared()
            if each.evaluation
            and each.aligned
            and not each.first.iterable
            and all(one.loader_class == "DataLoader" for one in each.begun.values())
            and same_data(each.begun.values()) is not False
        ]

    def _repeated(self, each: SharedPass) -> Finding | None:
        names, count = self._padding(each)
        if not count or any(self.run.windows.get(rank, begun).gathered for rank, begun in each.begun.items()):
            return None
        begun = each.first
        samples = begun.samples or 0
        which = f" (first: sample {names[0]})" if names else ""
        return self.finding(
            "warning",
            f"the evaluation counts {samples + count} samples instead of {samples}: its sampler repeats {count} of "
            f"them{which}, and the metric depends on the number of ranks",
            _ADVICE,
            place=begun.place,
            rank=min(each.begun),
            step=begun.step,
            samples=samples,
            counted=samples + count,
            repeated=names,
        )

    def _padding(self, each: SharedPass) -> tuple[list[int], int]:
        """The first repeated samples where the ledger has them, and how many there are."""
        begun, bits = each.first, each.bits
        samples = begun.samples or 0
        if bits is None:
            counts = [one.samples for one in each.ended.values()]
            total = sum(count for count in counts if count is not None)
            padded = each.replicas == self.world and begun.sampler_facts.get("drop_last") is False
            expected = padded and None not in counts and 0 < total - samples == -samples % each.replicas
            return [], total - samples if expected else 0
        if each.replicas <= 1 and (begun.sampler_facts or begun.sampler in TORCH_SAMPLERS):
            return [], 0
        again = bits_of({index for one in each.ranks.values() if one.indices for index in one.indices.again})
        repeated = shared(bits.values()) | again
        total = sum(one.indices.count for one in each.ranks.values() if one.indices)
        # A sampler that pads repeats fewer samples than there are ranks, and leaves none out.
        padded = 0 < total - samples < self.world and union(bits.values()).bit_count() == samples
        return (first_of(repeated), total - samples) if padded else ([], 0)

    def _dropped(self, each: SharedPass, passes: list[SharedPass]) -> Finding | None:
        """Samples of the tail that no evaluation reads."""
        begun, bits = each.first, each.bits
        samples, batch = begun.root_samples or 0, begun.batch_size or 0
        if bits is None or begun.subset is not None or each.replicas != self.world:
            return None
        others = [other.bits for other in passes if other.first.data == begun.data]
        if shared(bits.values()) or None in others:
            return None
        read = union(bit for other in others if other is not None for bit in other.values())
        missing = samples - read.bit_count()
        if not 0 < missing < self.world * max(batch, 1):
            return None
        return self.finding(
            "info",
            f"the evaluation leaves out {missing} of {samples} samples (drop_last)",
            _ADVICE,
            place=begun.place,
            rank=min(each.begun),
            step=begun.step,
            samples=samples,
            dropped=missing,
        )
