"""Every rank reads the whole data set.

What it finds:
    A training loader that is not sharded over ranks: no DistributedSampler, or one that the script made
    and gave to no loader.

Why it matters:
    An epoch takes as long as on one device, and each sample counts `world` times in it. Epochs, learning-rate
    schedules and numbers of steps no longer mean what they say.

Repair:
    `DataLoader(dataset, sampler=DistributedSampler(dataset), ...)` without `shuffle=True`, and
    `sampler.set_epoch(epoch)` before each epoch.

Known problems:
    Judged by the indices of samples. Whether the ranks' data sets are the same is known only where they hold their
    data in lists, arrays or tensors; elsewhere the finding is of severity `info`. A data set that ignores the index
    and draws at random is reported where a sampler shuffles.

References:
    F01. https://github.com/PatrickHua/SimSiam/issues/16
    F03. https://github.com/speechbrain/speechbrain/issues/1495
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.index_set import shared
from paceline.audits.loader_passes import TORCH_SAMPLERS, SharedPass, same_data
from paceline.records.event import Severity
from paceline.records.schema import Finding


class NoSampler(Audit):
    """Looks for samples that several ranks read in one training pass."""

    code, name, topic = "DP121", "no-sampler", "data"
    faults = ("F01", "F03")
    needs = ("loaders", "wrappers")

    def findings(self) -> list[Finding]:
        """At most one, for the first such pass. Identical batches are DP122's."""
        if not self.run.parallel.everywhere or self.run.inputs.found() is not None:
            return []
        found = (self._judge(each) for each in self.run.passes.shared())
        return [one for one in found if one is not None][:1]

    def looked_at(self) -> str:
        training = sum(1 for each in self.run.passes.shared() if each.training and not each.first.iterable)
        return f"samples of {training} training passes" if training else ""

    def _judge(self, each: SharedPass) -> Finding | None:
        severity = self._severity(each)
        if severity is None or not self._unsharded(each):
            return None
        whole = self.run.slices.whole(each)
        orders = {one.order for one in each.ended.values()}
        if whole is False or (whole is None and len(orders) == 1):
            return None
        if len(orders) == 1:
            severity = "info"  # other inputs from the same indices: augmented, or drawn without regard to the index
        begun = each.first
        unused = max(one.unused_samplers for one in each.begun.values())
        why = "no loader uses the script's DistributedSampler" if unused else "its loader has no DistributedSampler"
        return self.finding(
            severity if whole else ("info" if severity == "info" else "warning"),
            f"every rank trains on all {begun.samples} samples, since {why}; each epoch counts every sample "
            f"{self.world} times",
            "pass sampler=DistributedSampler(dataset) to the training DataLoader instead of shuffle=True",
            faults=("F03",) if unused else ("F01",),
            place=begun.place,
            rank=max(each.begun),
            step=begun.step,
            sampler=begun.sampler,
            samples=begun.samples,
            shared_samples=shared((each.bits or {}).values()).bit_count(),
        )

    def _severity(self, each: SharedPass) -> Severity | None:
        """How sure it is that ranks hold the same data and that nothing shards it; None where it is not."""
        begun = list(each.begun.values())
        if not each.training or begun[0].iterable or any(one.sampler_facts for one in begun):
            return None
        if len({one.subset for one in begun}) > 1 or any(one.batches < 2 for one in each.ended.values()):
            return None
        same = same_data(begun)
        if same is False or not self.run.slices.trained(each):
            return None
        if same is None:
            return "warning" if all(one.unused_samplers for one in begun) else "info"
        return "error" if _plain(each) else "warning"

    def _unsharded(self, each: SharedPass) -> bool:
        """Samples overlap although no rank draws with replacement; with other samplers, all ranks read all samples."""
        bits = each.bits
        if bits is None:
            return _all_in_order(each)
        if any(one.indices is not None and one.indices.again for one in each.ranks.values()):
            return False
        samples, batch = each.first.samples or 0, each.first.batch_size or 1
        if not _plain(each):
            return each.exhausted and samples > 0 and all(one.bit_count() >= samples for one in bits.values())
        whole = all(one.bit_count() > samples - batch for one in bits.values())  # but for a tail that is dropped
        return shared(bits.values()) > 0 and (whole or not each.exhausted)


def _plain(each: SharedPass) -> bool:
    """Torch's own loader and sampler, which do not shard."""
    return all(one.loader_class == "DataLoader" and one.sampler in TORCH_SAMPLERS for one in each.begun.values())


def _all_in_order(each: SharedPass) -> bool:
    """Without a ledger: every rank read as many samples as there are, in order."""
    return _plain(each) and all(
        one.exhausted
        and one.increasing
        and one.samples is not None
        and one.samples >= (begun.samples or one.samples + 1)
        for one, begun in zip(each.ended.values(), each.begun.values(), strict=True)
    )
