"""Buffers, such as BatchNorm's running statistics, differ between ranks where it matters.

What it finds:
    Ranks that evaluate together with different BatchNorm statistics. Other buffers that ranks update differently, as
    codebooks and running normalizers. BatchNorm layers whose statistics are those of each rank's own batch.

Why it matters:
    DDP averages gradients, not buffers: before each forward pass it overwrites every rank's with rank 0's. Updates of
    the other ranks are lost, and a metric over ranks with different statistics is that of no model.

Repair:
    Evaluate through the wrapper, or broadcast buffers once before evaluating and saving. Reduce statistics over ranks
    where a buffer is updated. `torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)` before wrapping gives BatchNorm
    the statistics of the global batch.

Known problems:
    After a training step BatchNorm statistics differ by nature and are not compared. Buffers whose names say that they
    are caches, masks or random states are left out.

References:
    F56, F57, F58, F59. https://github.com/pytorch/pytorch/issues/13711
"""

from __future__ import annotations

import re
from collections import Counter

from paceline.audits.audit import ReplicaAudit
from paceline.audits.evaluation_windows import Window
from paceline.audits.replicas import of_wrapped
from paceline.audits.wording import names_text, ranks_text
from paceline.records.observed_rank import ModelWrapped
from paceline.records.schema import Finding

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_OF_ONE_RANK = re.compile(r"rng|random|generator|seed|cache|mask|cos_|sin_|_cos|_sin|inv_freq|position|rank", re.I)


def _is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in _STATISTICS


def _is_learned(name: str) -> bool:
    return of_wrapped(name) and not _is_statistic(name) and not _OF_ONE_RANK.search(name)


class BuffersDiffer(ReplicaAudit):
    """Compares buffers after steps and where evaluations begin."""

    code, name, topic = "DP114", "buffers-differ", "replicas"
    faults = ("F56", "F57", "F58", "F59")
    needs = ("wrappers", "loaders", "fingerprints")
    explains_divergence = False

    def findings(self) -> list[Finding]:
        """At most one of each kind. Where parameters differ as well, buffers are not the cause."""
        if self.world < 2 or self.replicas.in_parts:
            return []
        found = [self._local_statistics()]
        if self.replicas.first() is None:
            found += [self._lost_updates(), self._evaluated_apart() or self._ended_apart()]
        return [each for each in found if each is not None]

    def _models(self) -> list[ModelWrapped]:
        return [ranks[min(ranks)] for _, ranks in sorted(self.replicas.models.items())]

    def _drifting(self) -> ModelWrapped | None:
        """A model with local statistics that DDP was told not to broadcast."""
        kept = [each for each in self._models() if each.options.get("broadcast_buffers") is False]
        return next((each for each in kept if each.layers.get("batch_norm")), None)

    def _local_statistics(self) -> Finding | None:
        model = next((each for each in self._models() if each.layers.get("batch_norm")), None)
        if model is None:
            return None
        return self.finding(
            "info",
            f"{model.layers['batch_norm']} BatchNorm layers of {model.model} normalize with the statistics of each "
            "rank's own batch, not of the global batch",
            "use SyncBatchNorm.convert_sync_batchnorm(model) before DDP(model) where batches per rank are small",
            faults=("F56",),
            place=model.place,
            batch_norm=model.layers["batch_norm"],
        )

    def _lost_updates(self) -> Finding | None:
        states = [each for each in self.replicas.differences("buffer", _is_learned) if each.moment == "state"]
        times = Counter(name for each in states for name in each.names)
        names = [name for name, count in times.items() if count > 1]
        if not names or not self.replicas.models:
            return None
        first = next(each for each in states if set(each.names) & set(names))
        model = self._models()[0]
        kept = any(each.options.get("broadcast_buffers") is False for each in self._models())
        effect = (
            "nothing makes them equal, and rank 0's are saved"
            if kept
            else "the next forward pass replaces them with rank 0's, so updates of other ranks are lost"
        )
        return self.finding(
            "warning",
            f"{ranks_text(first.ranks)} updated the buffer {names_text(names)} differently from rank 0 in step "
            f"{first.step}; {effect}",
            "reduce the statistics over ranks (all_reduce) where the buffer is updated",
            faults=("F58",),
            place=model.place,
            rank=first.ranks[0],
            step=first.step,
            buffers=names[:20],
        )

    def _evaluated_apart(self) -> Finding | None:
        models = self._models()
        if models and all(each.layers and not each.layers.get("batch_norm") for each in models):
            return None
        drifting = self._drifting()
        for (_, step, _), ranks in sorted(self.run.windows.evaluations.items(), key=lambda each: each[0][1:]):
            names = _differing(ranks, any_model=not models)
            broadcast = drifting is None and any(each.ended and each.ended.wrapped_forwards for each in ranks.values())
            if names and not broadcast and _together(ranks):
                return self._apart(step, ranks, names, drifting)
        return None

    def _apart(self, step: int, ranks: dict[int, Window], names: list[str], drifting: ModelWrapped | None) -> Finding:
        why = ", which broadcast_buffers=False keeps apart" if drifting else ""
        return self.finding(
            "warning",
            f"{ranks_text(ranks)} evaluate after step {step} with BatchNorm statistics of their own{why} "
            f"({names_text(names)}): the metric over ranks is that of no single model",
            "broadcast the buffers from rank 0 once before evaluating"
            if drifting
            else "evaluate through the DDP wrapper, or broadcast the buffers from rank 0 once before",
            faults=("F59",) if drifting else ("F57",),
            place=next((each.begun.place for _, each in sorted(ranks.items()) if each.begun.place), None),
            rank=max(ranks),
            step=step,
            buffers=names[:20],
        )

    def _ended_apart(self) -> Finding | None:
        """Without any evaluation, statistics that nothing ever makes equal."""
        drifting = self._drifting()
        ended = len(self.replicas.ended) == self.world
        if drifting is None or not ended or self.run.windows.evaluations:
            return None
        found = [each for each in self.replicas.differences("buffer", _is_statistic) if of_wrapped(each.names[0])]
        last = next((each for each in found if each.moment == "end"), None)
        if last is None:
            return None
        return self.finding(
            "warning",
            f"broadcast_buffers=False lets BatchNorm statistics drift apart: {ranks_text(last.ranks)} ends with other "
            f"values of {last.text} than rank 0, which is saved",
            "leave broadcast_buffers on, use SyncBatchNorm, or average the buffers before saving",
            faults=("F59",),
            place=drifting.place,
            rank=last.ranks[0],
            step=last.step,
            buffers=last.names[:20],
        )

    def looked_at(self) -> str:
        evaluations = len(self.run.windows.evaluations)
        states = sum(moment == "state" for _, moment in self.replicas.compared)
        return f"buffers after {states} steps and in {evaluations} evaluations" if states or evaluations else ""


def _differing(ranks: dict[int, Window], *, any_model: bool) -> list[str]:
    """Statistics that differ between ranks that evaluate."""
    base, *others = (each.buffers for _, each in sorted(ranks.items()))
    names = [name for name in base if _is_statistic(name)]
    bare = [name.removeprefix("buffer:") for name in names if any(each.get(name) != base[name] for each in others)]
    return [name for name in bare if any_model or of_wrapped(name)]


def _together(ranks: dict[int, Window]) -> bool:
    """True if the ranks make one metric: each evaluates a part, or they reduce."""
    orders = {each.ended.order for each in ranks.values() if each.ended}
    return len(orders) > 1 or any(each.sharded or each.reduced for each in ranks.values())
