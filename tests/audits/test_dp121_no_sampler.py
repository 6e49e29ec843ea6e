"""Every rank reads the whole data set: found in the ledger, unless the script shards the samples itself."""

from __future__ import annotations

import pytest

from paceline.audits.dp121_no_sampler import NoSampler
from tests.audits.loader_events import TRAIN, batches_of, called, facts, judged, read, seen, sharded, shuffled, stepped


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_that_read_all_samples_in_orders_of_their_own_are_an_error(world):
    """The loader was left as it was on one device."""
    (found,) = judged(NoSampler, [read(shuffled(rank)) for rank in range(world)])

    assert (found.severity, found.faults, found.line) == ("error", ["F01"], TRAIN.line)
    assert "all 24 samples" in found.message
    assert f"{world} times" in found.message
    assert found.evidence["shared_samples"] == 24


def test_a_sampler_that_no_loader_uses_is_named():
    """It was made, and then forgotten."""
    (found,) = judged(NoSampler, [read(shuffled(rank), unused_samplers=1) for rank in range(2)])

    assert (found.severity, found.faults) == ("error", ["F03"])


def test_a_pass_that_is_left_early_counts_as_soon_as_two_ranks_read_one_sample():
    """max_steps ends many runs within the first pass."""
    ranks = [read(shuffled(rank)[:4], exhausted=False) for rank in range(2)]

    (found,) = judged(NoSampler, ranks)

    assert found.severity == "error"


def test_a_sequential_loader_is_found_without_a_ledger():
    """Its order is known. Inputs differ, so the data set may draw them without regard to the index."""
    ranks = [
        read(
            batches_of(range(24)), recorded=False, sampler="SequentialSampler", inputs=[f"{rank}{b}" for b in range(6)]
        )
        for rank in range(2)
    ]

    (found,) = judged(NoSampler, ranks)

    assert (found.severity, found.faults) == ("info", ["F01"])


def test_a_framework_s_loader_counts_when_all_ranks_read_all_samples():
    """Accelerate's sampler is hidden in a batch sampler."""
    ranks = [read(shuffled(rank), loader_class="DataLoaderShard", sampler="?") for rank in range(2)]

    (found,) = judged(NoSampler, ranks)

    assert found.severity == "warning"


def test_data_that_cannot_be_compared_are_worth_an_info_only():
    """A data set that opens a file lazily may hold another file on each rank."""
    (found,) = judged(NoSampler, [read(shuffled(rank), content=None) for rank in range(2)])

    assert found.severity == "info"


def test_a_distributed_sampler_is_right():
    """Shards are disjoint but for padding."""
    ranks = [read(sharded(rank, 2), sampler="DistributedSampler", sampler_facts=facts(rank, 2)) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_a_slice_of_a_common_batch_on_each_rank_is_right():
    """All ranks draw the same global batch of 4 and train on 2 rows of it."""
    batches = shuffled(0)
    ranks = [read(batches, rows=2, inputs=[f"{rank}{b}" for b in range(6)]) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_passes_that_end_before_ranks_meet_prove_nothing():
    """No sample was on both ranks so far."""
    ranks = [read(batches_of(range(12 * rank, 12 * rank + 12)), exhausted=False) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_a_subset_for_each_rank_is_right():
    """Rank r reads the samples r, r + 2, ..."""
    ranks = [read(batches_of(range(rank, 24, 2)), subset=f"s{rank}", samples=12) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


@pytest.mark.parametrize("field", ["content", "attributes"])
def test_a_file_for_each_rank_is_right(field):
    """The same indices are other samples."""
    ranks = [read(shuffled(rank), **{"content": None, field: f"file {rank}"}) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_drawing_with_replacement_is_right():
    """Samples that come twice on one rank come from such a sampler."""
    ranks = [read([[0, 1, 1, 2 + rank], [3, 4, 5, 5]], exhausted=False) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_a_random_part_of_the_data_on_each_rank_is_right():
    """RandomSampler(num_samples=...), with a seed of its own on each rank."""
    ranks = [read(shuffled(rank)[:3]) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_a_sampler_of_the_script_may_repeat_samples_on_purpose():
    """Weighted sampling over one global list."""
    ranks = [read(shuffled(rank)[:3], sampler="WeightedShards", exhausted=False) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_evaluations_and_previews_are_passed_over():
    """Every rank may evaluate all samples, and look at a batch."""
    ranks = [
        [
            *read(shuffled(0)[:1], place=None, loader=1, exhausted=False),
            *read(batches_of(range(24)), training=False, loader=2, sampler="SequentialSampler"),
        ]
        for _ in range(2)
    ]

    assert judged(NoSampler, ranks) == []


def test_a_preview_that_training_leaves_open_is_passed_over():
    """Backward passes follow while its iterator lives, but its batches are not trained on."""
    preview = [[each for each in read(shuffled(r), loader=3) if not hasattr(each, "digest")] for r in range(2)]
    train = [read(sharded(r, 2), sampler="DistributedSampler", sampler_facts=facts(r, 2)) for r in range(2)]

    assert judged(NoSampler, [[*preview[rank], *train[rank]] for rank in range(2)]) == []


def test_what_other_audits_explain_is_left_to_them():
    """A sampler with one shard is DP124's, subsets that differ are DP127's."""
    one_shard = [read(shuffled(rank), sampler_facts=facts(0, 1)) for rank in range(2)]
    subsets = [read(shuffled(rank), subset=f"s{rank}") for rank in range(2)]

    assert judged(NoSampler, one_shard) == []
    assert judged(NoSampler, subsets) == []


def test_chunks_of_a_common_order_may_be_slices():
    """Rows tell nothing, and all ranks read the same batches."""
    ranks = [read(shuffled(0), rows=1, inputs=[f"{rank}{b}" for b in range(6)], batch_size=8) for rank in range(2)]

    assert judged(NoSampler, ranks) == []


def test_tensor_parallel_ranks_read_the_same_on_purpose():
    """The wrapper's group is smaller than the job."""
    assert judged(NoSampler, [read(shuffled(rank)) for rank in range(4)], group=2) == []


def test_ranks_that_share_no_gradients_may_train_models_of_their_own():
    """An ensemble."""
    assert judged(NoSampler, [read(shuffled(rank)) for rank in range(2)], group=0) == []


def test_gradients_that_the_script_averages_itself_make_it_data_parallel():
    """Without DDP, all_reduce on gradients over all ranks says so."""
    reduce = called("all_reduce", 400, on="gradients", size=2)

    (found,) = judged(NoSampler, [[*read(shuffled(rank)), reduce, stepped(1)] for rank in range(2)], group=0)

    assert found.faults == ["F01"]


def test_identical_batches_are_left_to_their_own_audit():
    """One finding for one cause."""
    assert judged(NoSampler, [read(shuffled(0)) for _ in range(2)]) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing, one was killed within the pass."""
    assert judged(NoSampler, [read(shuffled(0)), read(shuffled(1)), []], world=3) == []
    assert judged(NoSampler, [read(shuffled(0)), read(shuffled(1)[:2], end=False)]) == []


def test_a_ledger_that_comes_before_or_after_the_events_is_read_as_well():
    """A saved run's reader may give all batches first or last."""
    events = [read(shuffled(rank)) for rank in range(2)]
    first = [sorted(each, key=lambda one: type(one).__name__ != "LedgerBatch") for each in events]
    last = [sorted(each, key=lambda one: type(one).__name__ == "LedgerBatch") for each in events]

    assert len(judged(NoSampler, first)) == len(judged(NoSampler, last)) == 1


def test_an_incomplete_ledger_proves_nothing():
    """A batch was lost."""
    events = [read(shuffled(rank)) for rank in range(2)]
    del events[1][1]

    assert judged(NoSampler, events) == []


def test_rows_that_do_not_tell_make_a_warning():
    """Inputs were seen, but in pieces: accumulation by chunks."""
    ranks = [
        [*(each for each in read(shuffled(r)) if not hasattr(each, "digest")), seen(1, f"{r}", 1, loader=0, number=0)]
        for r in range(2)
    ]

    (found,) = judged(NoSampler, ranks)

    assert found.severity == "warning"
