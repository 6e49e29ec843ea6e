"""The training sampler repeats samples to give all ranks the same number.

What it finds:
    A training data set whose length is no multiple of the number of ranks, with a DistributedSampler that fills up.

Why it matters:
    A few samples count twice in each epoch. This is usual and harmless; it matters for exact parity with one device.

Repair:
    Nothing, or `DistributedSampler(..., drop_last=True)`.

Known problems:
    None.

References:
    F18. https://github.com/pytorch/pytorch/issues/22584
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.loader_passes import SharedPass
from paceline.records.schema import Finding


class PaddedTraining(Audit):
    """Compares the length of training data with the number of shards."""

    code, name, topic = "DP129", "padded-training", "data"
    faults = ("F18",)
    needs = ("loaders",)

    def findings(self) -> list[Finding]:
        for each in self._sharded():
            begun, replicas = each.first, each.replicas
            samples = begun.samples or 0
            repeated = -samples % replicas
            if repeated and begun.sampler_facts.get("drop_last") is False:
                return [
                    self.finding(
                        "info",
                        f"{samples} samples do not divide by {replicas} ranks: the sampler repeats {repeated} of them "
                        "in each epoch",
                        "nothing, or drop_last=True in the DistributedSampler for exact parity with one device",
                        place=begun.place,
                        rank=min(each.begun),
                        step=begun.step,
                        samples=samples,
                        repeated=repeated,
                    )
                ]
        return []

    def looked_at(self) -> str:
        passes = len(self._sharded())
        return f"length of the data in {passes} training passes" if passes else ""

    def _sharded(self) -> list[SharedPass]:
        return [each for each in self.run.passes.shared() if each.training and each.replicas > 1]
