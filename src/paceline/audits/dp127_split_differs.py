"""The split into training and validation data differs between ranks.

What it finds:
    A Subset that differs between ranks while a DistributedSampler shards it, and samples that one rank evaluates
    while another trains on them.

Why it matters:
    The validation result is measured in part on training data, so it is too good.

Repair:
    `random_split(dataset, lengths, generator=torch.Generator().manual_seed(0))` with the same seed on all ranks.

Known problems:
    A split that is different on purpose, each rank within a shard of its own, is recognized by its disjoint shards.

References:
    F65. https://github.com/Lightning-AI/pytorch-lightning/issues/7728
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.audits.across_ranks import differing
from paceline.audits.audit import Audit
from paceline.audits.index_set import first_of, union
from paceline.audits.loader_passes import SharedPass, replicas_of, same_data
from paceline.audits.wording import ranks_text
from paceline.records.observed_rank import LoaderBegun
from paceline.records.schema import Finding

_ADVICE = "split with the same seed on all ranks: random_split(..., generator=torch.Generator().manual_seed(0))"
_LEAST_OWN = 14
"""Evaluated samples for each shard of the training data: that a rank's own shard has none of them by chance, where
all are training data, has a probability below e^-14."""


@dataclass(frozen=True)
class _Leak:
    evaluation: SharedPass
    rank: int
    samples: int
    evaluated: int
    first: int


class SplitDiffers(Audit):
    """Compares subsets of ranks, and the samples that they evaluate with those that others train on."""

    code, name, topic = "DP127", "split-differs", "data"
    faults = ("F65",)
    needs = ("loaders",)

    def findings(self) -> list[Finding]:
        """At most one: the leak where it was counted, else the subsets that differ."""
        if not self.run.parallel.everywhere:
            return []
        leaks = (_leak(training, evaluation) for training, evaluation in self._pairs())
        leak = next((found for found in leaks if found is not None), None)
        if leak is not None:
            begun = leak.evaluation.begun[leak.rank]
            return [
                self.finding(
                    "error",
                    f"{leak.samples} of the {leak.evaluated} samples that rank {leak.rank} evaluates are training data "
                    f"of other ranks (first: sample {leak.first}); the validation result is too good",
                    _ADVICE,
                    place=begun.subset_place or begun.place,
                    rank=leak.rank,
                    step=begun.step,
                    leaked=leak.samples,
                    evaluated=leak.evaluated,
                    sample=leak.first,
                )
            ]
        return self._subsets()

    def looked_at(self) -> str:
        pairs = len(self._pairs())
        split = sum(1 for begun in self.run.passes.begun() if any(one.subset for one in begun.values()))
        looked = [f"subsets of {split} passes"] * bool(split)
        looked += [f"samples of {pairs} evaluations against those of training"] * bool(pairs)
        return ", ".join(looked)

    def _subsets(self) -> list[Finding]:
        for begun in self.run.passes.begun():
            subsets = {rank: one.subset for rank, one in begun.items()}
            sharded = all(replicas_of(one) == self.world for one in begun.values())
            if not sharded or None in subsets.values() or same_data(begun.values()) is False:
                continue
            if ranks := differing(subsets):
                first = begun[ranks[0]]
                return [
                    self.finding(
                        "error",
                        f"{ranks_text(ranks)} and rank {min(subsets)} hold different subsets of the data set; some "
                        "samples are training data on one rank and validation data on another",
                        _ADVICE,
                        place=first.subset_place or first.place,
                        rank=ranks[0],
                        step=first.step,
                        subsets={str(rank): subset for rank, subset in subsets.items()},
                    )
                ]
        return []

    def _pairs(self) -> list[tuple[SharedPass, SharedPass]]:
        """Each evaluation after each whole training pass of the same start of the job."""
        known = [each for each in self.run.passes.shared() if each.bits is not None]
        training = [each for each in known if each.training and each.exhausted]
        evaluations = [each for each in known if each.evaluation]
        return [(one, other) for other in evaluations for one in training if one.series[0] == other.series[0]]


def _leak(training: SharedPass, evaluation: SharedPass) -> _Leak | None:
    """Samples evaluated on one rank and trained on by another, where each rank for itself keeps them apart."""
    trained, evaluated = training.bits, evaluation.bits
    if trained is None or evaluated is None or not _one_data_set(training, evaluation):
        return None
    if any(trained[rank] & evaluated[rank] for rank in trained):
        return None
    of_all = union(trained.values())
    for rank, bits in evaluated.items():
        leaked = bits & of_all
        differs = training.begun[rank].subset is not None and _subsets_differ(training.begun)
        if leaked and (differs or leaked.bit_count() >= _LEAST_OWN * len(trained)):
            return _Leak(evaluation, rank, leaked.bit_count(), bits.bit_count(), first_of(leaked, 1)[0])
    return None


def _one_data_set(training: SharedPass, evaluation: SharedPass) -> bool:
    """Both passes, on all ranks, read the same root data set."""
    begun = list(training.begun.values())
    if any(one.data != evaluation.begun[rank].data for rank, one in training.begun.items()):
        return False
    same = {same_data(begun), same_data(evaluation.begun.values())}
    if False in same:
        return False
    return True in same or all(replicas_of(one) > 1 for one in begun)


def _subsets_differ(begun: dict[int, LoaderBegun]) -> bool:
    return len({one.subset for one in begun.values()}) > 1
