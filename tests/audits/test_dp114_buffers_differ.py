"""Buffers that differ where it matters are a warning; BatchNorm after a step is not."""

from __future__ import annotations

import pytest

from paceline.audits.dp114_buffers_differ import BuffersDiffer
from tests.audits.observed_events import (
    NAMES,
    begun,
    collective,
    ended,
    fingerprint,
    found,
    job,
    loader_ended,
    states,
    step,
    without,
    wrapped,
)

BN = ("bn.running_mean", "bn.running_var")
LAYERS = {"batch_norm": 1, "sync_batch_norm": 0, "dropout": 0}
KEPT = {"broadcast_buffers": False}
STEPS = (1, 2, 3)


def findings(ranks):
    """All but the note on local statistics, which concerns every model with BatchNorm."""
    return [each for each in found(BuffersDiffer, ranks) if each.faults != ["F56"]]


def evaluating(rank, *, buffers=BN, by=(0, 1, 2), forwards=0, sharded=True, reduced=False, model=None, order=None):
    """Three steps, then an evaluation."""
    yield model or wrapped(layers=LAYERS)
    for number in STEPS:
        yield step(number)
    if rank in by:
        yield begun(step=3, sampler_facts={"num_replicas": 2, "rank": rank} if sharded else {})
        yield fingerprint(rank, 3, "evaluation", buffers, kind="buffer")
        yield loader_ended(step=3, wrapped_forwards=forwards, order=order and f"{order}{rank}")
        yield from [collective(step=3)] if reduced else []


def test_ranks_that_evaluate_parts_with_statistics_of_their_own_are_a_warning():
    """Through `.module`, so that DDP broadcasts nothing."""
    (finding,) = findings(job(evaluating))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("warning", ["F57"], 3, 30)
    assert "ranks 0 and 1 evaluate after step 3 with BatchNorm statistics of their own" in finding.message
    assert "bn.running_mean and 1 more" in finding.message


def test_two_of_three_ranks_are_enough():
    """They make one metric."""
    (finding,) = findings(job(lambda rank: evaluating(rank, by=(0, 2)), world=3))

    assert "ranks 0 and 2 evaluate" in finding.message


@pytest.mark.parametrize("together", [{"order": "part"}, {"reduced": True}])
def test_other_orders_or_a_reduction_show_that_the_metric_is_of_all_ranks(together):
    """Without a DistributedSampler."""
    assert len(findings(job(lambda rank: evaluating(rank, sharded=False, **together)))) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"forwards": 10},
        {"buffers": ()},
        {"buffers": ["codebook.counts"]},
        {"buffers": ["Average/bn.running_mean"]},
        {"by": (0,)},
        {"sharded": False},
        {"model": wrapped(layers={"batch_norm": 0, "sync_batch_norm": 1})},
    ],
    ids=[
        "through the wrapper",
        "equal",
        "other buffers",
        "an average of the weights",
        "on rank 0 only",
        "whole data on each rank",
        "SyncBatchNorm",
    ],
)
def test_evaluations_of_one_model_are_fine(other):
    """Or evaluations that the others' statistics do not touch."""
    assert findings(job(lambda rank: evaluating(rank, **other))) == []


@pytest.mark.parametrize("model", [wrapped(), step(1)])
def test_layers_that_were_not_counted_may_be_batch_norm(model):
    """Or there is no wrapper, and the script reduces gradients itself."""
    name = "bn.running_mean" if model == wrapped() else "Net/bn.running_mean"

    assert len(findings(job(lambda rank: evaluating(rank, model=model, buffers=[name])))) == 1


def test_models_of_smaller_groups_are_not_compared():
    """Each group has statistics of its own."""
    events = job(lambda rank: evaluating(rank, model=wrapped(size=2, layers=LAYERS), by=range(4)), world=4)

    assert found(BuffersDiffer, events) == []


def test_statistics_that_ddp_does_not_broadcast_are_a_fault_of_that_option():
    """The wrapper does not help then."""
    model = wrapped(layers=LAYERS, options=KEPT)

    (finding,) = findings(job(lambda rank: evaluating(rank, model=model, forwards=10)))

    assert finding.faults == ["F59"]


def test_statistics_that_drift_to_the_end_are_a_warning_where_nothing_was_evaluated():
    """Rank 0's are saved."""

    def events(rank, options=KEPT):
        yield wrapped(layers=LAYERS, options=options)
        yield step(1)
        yield fingerprint(rank, 1, "end", BN, kind="buffer")
        yield ended(1)

    (finding,) = findings(job(events))

    assert (finding.severity, finding.faults) == ("warning", ["F59"])
    assert findings(job(lambda rank: events(rank, {"broadcast_buffers": True}))) == []
    assert findings(job(lambda rank: list(events(rank))[:-1])) == []


def test_an_evaluation_by_rank_0_with_drifting_statistics_is_fine():
    """Two forward passes before one backward pass need that option."""

    def events(rank):
        yield from evaluating(rank, by=(0,), model=wrapped(layers=LAYERS, options=KEPT))
        yield fingerprint(rank, 3, "end", BN, kind="buffer")
        yield ended(3)

    assert findings(job(events)) == []


def updating(rank, *, name="codebook.counts", steps=STEPS, model=None):
    """A buffer that differs after steps."""
    yield model or wrapped()
    for number in STEPS:
        yield step(number)
        yield fingerprint(rank, number, "state", [name] if number in steps else (), kind="buffer", more=[name])


def test_a_codebook_that_each_rank_updates_by_itself_is_a_warning():
    """Rank 0's overwrites it."""
    (finding,) = findings(job(updating, world=3))

    assert (finding.severity, finding.faults, finding.step) == ("warning", ["F58"], 1)
    assert "ranks 1 and 2 updated the buffer codebook.counts differently from rank 0" in finding.message


@pytest.mark.parametrize(
    "other",
    [{"name": "bn.running_mean"}, {"name": "rope.cos_cached"}, {"name": "Accuracy/correct"}, {"steps": (1,)}],
    ids=["BatchNorm by nature", "a cache", "of a metric that is not wrapped", "initialized from the first batch"],
)
def test_buffers_that_may_differ_are_fine(other):
    """After a step."""
    assert findings(job(lambda rank: updating(rank, **other))) == []


def test_buffers_of_replicas_that_part_are_an_effect_and_no_cause():
    """One finding per cause."""

    def events(rank):
        yield from updating(rank)
        yield from states(rank, STEPS, NAMES)
        yield from evaluating(rank)

    assert findings(job(events)) == []


def test_local_statistics_of_batch_norm_are_only_mentioned():
    """A correct script may want them."""
    (finding,) = found(BuffersDiffer, job(lambda rank: [wrapped(layers=LAYERS)]))

    assert (finding.severity, finding.faults, finding.line) == ("info", ["F56"], 10)
    assert found(BuffersDiffer, job(lambda rank: [wrapped(layers=LAYERS)], world=1)) == []
    assert found(BuffersDiffer, job(lambda rank: [wrapped()])) == []


def test_a_rank_that_wrote_nothing_gives_no_warning():
    """There is nothing to compare with."""
    assert findings(without(job(evaluating), 1)) == []
    assert findings(without(job(updating), 1)) == []
