"""The order of samples is the same in each epoch.

What it finds:
    A training loader that shuffles and gives the samples of every pass in the same order.

Why it matters:
    Each epoch repeats the same batches, which costs accuracy. Shuffling has no effect after the first epoch.

Repair:
    `sampler.set_epoch(epoch)` before each epoch, on the sampler that the loader uses.

Known problems:
    A script that seeds torch with the same number before each epoch on purpose is reported as well.

References:
    F06. https://github.com/pytorch/pytorch/issues/31771
    F07. https://github.com/Lightning-AI/pytorch-lightning/issues/13316
    F08. https://github.com/huggingface/datasets/issues/6673
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from paceline.audits.audit import Audit
from paceline.audits.loader_passes import Pass, Series, SharedPass, pass_of
from paceline.audits.run_state import RunState
from paceline.records.event import Event, Severity, attempt_of
from paceline.records.observed_rank import InputSeen
from paceline.records.schema import Finding

_LEAST_BATCHES = 3
_MOST_BATCHES, _MOST_PASSES = 64, 4
"""Whose inputs are kept, of each iterable loader."""


class SameOrderEachEpoch(Audit):
    """Compares the orders of consecutive training passes."""

    code, name, topic = "DP123", "same-order-each-epoch", "data"
    faults = ("F06", "F07", "F08")
    needs = ("loaders",)

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._inputs: dict[Pass, dict[int, str]] = defaultdict(dict)

    def feed(self, rank: int, event: Event) -> None:
        """Collect inputs, for data without indices."""
        if isinstance(event, InputSeen) and event.loader is not None and event.digest:
            number, batch = event.number or 0, event.batch or 0
            if number < _MOST_PASSES and batch < _MOST_BATCHES:
                key = (attempt_of(event), rank, event.loader, number)
                self._inputs[key].setdefault(batch, event.digest)

    def findings(self) -> list[Finding]:
        """At most one for each series of passes, the first two of them."""
        found = [self._judge(passes) for passes in self._series()]
        return [each for each in found if each is not None][:2]

    def looked_at(self) -> str:
        passes = sum(len(each) for each in self._series())
        return f"order of samples in {passes} training passes" if passes else ""

    def _series(self) -> list[list[SharedPass]]:
        """Training passes of one loop and one model, two or more, none left early and none short."""
        found: dict[tuple[Series, int], list[SharedPass]] = defaultdict(list)
        for each in self.run.passes.shared():
            long = all(one.batches >= _LEAST_BATCHES for one in each.ended.values())
            if each.training and each.exhausted and long:
                models = each.ranks[min(each.ranks)].models
                found[each.series, models].append(each)
        return [passes for passes in found.values() if len(passes) > 1]

    def _judge(self, passes: list[SharedPass]) -> Finding | None:
        first, second = passes[:2]
        begun = first.first
        iterable = begun.iterable
        same = self._same_inputs if iterable else _same_order
        if not all(same(one, other) for one, other in pairwise(passes)):
            return None
        given = [[one.set_epoch for one in each.begun.values()] for each in passes]
        if not iterable and None not in given[0] and given[0] == given[1] and len(passes) < 3:
            return None  # two passes over one epoch, perhaps on purpose
        fault = "F08" if iterable else ("F06" if None in given[1] else "F07")
        severity = _severity_of_iterable(passes) if iterable else _severity(passes)
        if severity is None:
            return None
        why, advice = _explain(fault, own=not iterable and not begun.sampler_facts)
        return self.finding(
            severity,
            f"{len(passes)} training passes give the same samples in the same order{why if severity != 'info' else ''}",
            advice,
            faults=(fault,),
            place=begun.place,
            rank=min(first.begun),
            step=second.first.step,
            passes=len(passes),
            batches=first.ended[min(first.ended)].batches,
            sampler=begun.sampler,
        )

    def _same_inputs(self, one: SharedPass, other: SharedPass) -> bool:
        """The inputs that were seen of both passes are equal, batch by batch, on all ranks."""
        for rank in one.begun:
            earlier, later = (self._inputs.get(pass_of(rank, each.begun[rank]), {}) for each in (one, other))
            both = earlier.keys() & later.keys()
            if any(earlier[batch] != later[batch] for batch in both):
                return False
            if len({earlier[batch] for batch in both}) < _LEAST_BATCHES:
                return False
        return True


def _explain(fault: str, *, own: bool) -> tuple[str, str]:
    """Why the order is the same, and what helps."""
    if own:
        return (
            ": the generator that shuffles starts from the same seed each time",
            "do not seed the generator with the same number before each epoch",
        )
    if fault == "F08":
        return (
            ": persistent workers keep their first copy of the data set",
            "set persistent_workers=False, or keep the epoch in shared memory",
        )
    why = "set_epoch is not called" if fault == "F06" else "set_epoch does not reach the sampler of this loader"
    return f": {why}", "call set_epoch(epoch) on the DistributedSampler of this loader before each epoch"


def _same_order(one: SharedPass, other: SharedPass) -> bool:
    return all(
        each.order is not None and each.order == other.ended[rank].order and not each.increasing
        for rank, each in one.ended.items()
    )


def _severity(passes: list[SharedPass]) -> Severity | None:
    """By what is known of the sampler: one that keeps an order on purpose is left alone."""
    begun = passes[0].first
    shuffle = begun.sampler_facts.get("shuffle")
    if shuffle is False or begun.sampler == "SequentialSampler":
        return None
    if shuffle:
        return "error"  # only a DistributedSampler has such facts
    return "warning" if "Random" in begun.sampler else "info"


def _severity_of_iterable(passes: list[SharedPass]) -> Severity | None:
    begun = passes[0].first
    if not (begun.workers and begun.persistent):
        return None
    last = passes[-1].first.set_epoch
    return "warning" if last is not None and last != begun.set_epoch else "info"
