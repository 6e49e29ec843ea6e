"""A training loader no longer shuffles, or an evaluation does.

What it finds:
    `DistributedSampler(shuffle=False)` on a training loader that is read in order in every pass, and a
    DistributedSampler that shuffles in an evaluation.

Why it matters:
    Training without shuffling often costs accuracy. A shuffled evaluation gives predictions in random order.

Repair:
    `shuffle=True` for training (with `set_epoch`), `shuffle=False` for evaluation. The default of DistributedSampler is
    `shuffle=True`.

Known problems:
    Both may be on purpose; the finding is of severity `info`.

References:
    F05. https://github.com/facebookresearch/SlowFast/issues/248
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.loader_passes import SharedPass
from paceline.records.schema import Finding

_LEAST_PASSES, _LEAST_BATCHES = 2, 2


class ShuffleLost(Audit):
    """Looks at what DistributedSamplers do with the order of samples."""

    code, name, topic = "DP128", "shuffle-lost", "data"
    faults = ("F05",)
    needs = ("loaders",)

    def findings(self) -> list[Finding]:
        """At most one for training and one for evaluation."""
        passes = self._sharded()
        in_order = [each for each in passes if each.training and _in_order(each)]
        series = [each.series for each in in_order]
        lost = next((each for each in in_order if series.count(each.series) >= _LEAST_PASSES), None)
        gained = next((each for each in passes if each.evaluation and _shuffles(each)), None)
        found = []
        if lost is not None:
            message = "the training sampler does not shuffle; every pass reads the samples in the same order"
            found.append(self._found(lost, message, "give the training DistributedSampler shuffle=True, and set_epoch"))
        if gained is not None:
            message = "the evaluation's DistributedSampler shuffles; predictions come in random order"
            found.append(self._found(gained, message, "give the evaluation's DistributedSampler shuffle=False"))
        return found

    def looked_at(self) -> str:
        passes = len(self._sharded())
        return f"shuffling of {passes} passes" if passes else ""

    def _sharded(self) -> list[SharedPass]:
        return [each for each in self.run.passes.shared() if each.replicas > 1]

    def _found(self, each: SharedPass, message: str, advice: str) -> Finding:
        begun = each.first
        return self.finding(
            "info",
            message,
            advice,
            place=begun.place,
            rank=min(each.begun),
            step=begun.step,
            sampler=begun.sampler,
        )


def _in_order(each: SharedPass) -> bool:
    """Read in order, since the sampler was told not to shuffle."""
    return all(one.sampler_facts.get("shuffle") is False for one in each.begun.values()) and all(
        one.increasing and one.batches >= _LEAST_BATCHES for one in each.ended.values()
    )


def _shuffles(each: SharedPass) -> bool:
    return all(one.sampler_facts.get("shuffle") is True for one in each.begun.values())
