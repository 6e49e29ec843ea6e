"""Loss, count and wishes of all ranks travel with the gradients, exactly."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.tasks.task import Loss, Task
from paceline.train.ddp_warmup import check_loss
from paceline.train.objective import (
    LEDGER,
    Counts,
    LedgerReader,
    Objective,
    Totals,
    count_parts,
    read_totals,
    total_count,
)
from tests.train import ranks

SIZES = [[5], [3, 4], [3, 0, 4], [0, 0, 2]]


def one_process(samples: int) -> tuple[float, list[np.ndarray]]:
    """Loss sum and gradients of the mean of a whole batch, in plain PyTorch."""
    model = ranks.network()
    x, y = ranks.points(samples)
    losses = functional.cross_entropy(model(x), y, reduction="none")
    losses.mean().backward()
    return losses.sum().item(), [p.grad.numpy() for p in model.parameters()]


@pytest.mark.parametrize("sizes", SIZES)
def test_loss_count_and_gradients_are_those_of_one_process(sizes: list[int]) -> None:
    """However uneven the parts are, ranks without a sample included; equal on every rank."""
    loss, gradients = one_process(sum(sizes))

    results = run_ranks(ranks.one_step, len(sizes), sizes, None, {}, timeout_s=60)

    for result in results:
        totals = result["totals"]
        assert totals.loss == pytest.approx(loss, rel=1e-14)
        assert (totals.count, totals.terminate, totals.interrupt) == (sum(sizes), False, False)
        for found, expected in zip(result["gradients"], gradients, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-16)
    assert len({result["totals"] for result in results}) == 1


def test_one_ranks_wish_to_stop_reaches_all_also_from_a_rank_without_samples() -> None:
    """Terminate from rank 0, interrupt from rank 1, which has nothing to do."""
    results = run_ranks(ranks.one_step, 3, [3, 0, 4], None, {0: (1.0, 0.0, 0.0), 1: (0.0, 1.0, 0.0)})
    only = run_ranks(ranks.one_step, 3, [3, 0, 4], None, {1: (0.0, 1.0, 0.0)})

    assert [(r["totals"].terminate, r["totals"].interrupt) for r in results] == [(True, True)] * 3
    assert [(r["totals"].terminate, r["totals"].interrupt) for r in only] == [(False, True)] * 3


def test_a_loss_that_is_not_a_number_on_one_rank_is_seen_by_all_and_spoils_nothing_else() -> None:
    """The count and the wishes stay what they are, so all ranks stop for the same reason."""
    results = run_ranks(ranks.one_step, 3, [3, 2, 4], 1, {2: (1.0, 0.0, 0.0)})

    for result in results:
        assert math.isnan(result["totals"].loss)
        assert (result["totals"].count, result["totals"].terminate, result["totals"].interrupt) == (9, True, False)


def test_a_rank_without_samples_reaches_no_parameter_and_does_not_touch_buffers() -> None:
    """Batch norm would otherwise see some sample twice; only the wishes are in its ledger."""
    (result,) = run_ranks(ranks.empty_rank, 1)

    assert result["value"] == 0.0
    assert result["gradients"] == [None] * 6
    assert result["ledger"] == [0, 0, 0, 0, 0, 1, 0, 0, *[0] * 6]
    assert result["buffers equal"]


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_step_costs_one_all_reduce_whatever_the_accumulation(accumulation: int) -> None:
    """Gradients, loss, count and stop together, and nothing else, for a model of one bucket."""
    if not hasattr(torch.distributed.ProcessGroup, "register_pre_hook"):
        pytest.skip("this torch cannot count collectives")

    issued = run_ranks(ranks.collectives, 2, accumulation, 5)

    assert issued == [["ALLREDUCE"] * 5] * 2


def objective_of(loss, model: nn.Module | None = None) -> Objective:
    """An objective around any loss function."""
    return Objective(model or nn.Linear(3, 2), loss, nullcontext)


def test_the_value_is_the_scaled_sum_and_the_ledger_is_never_part_of_it() -> None:
    """Its value is zero, its gradient is the message; counts may be numbers or tensors."""
    x = torch.randn(4, 3)
    for count in (4, 4.0, torch.tensor(4), torch.tensor([4.0])):
        objective = objective_of(lambda model, batch, count=count: Loss(model(batch).square().sum(), count))

        value = objective(x, 0.25, (0.0, 1.0, 0.0))
        value.backward()

        expected = objective.model(x).square().sum()
        assert value.item() == pytest.approx(0.25 * expected.item(), rel=1e-6)
        reached = [1, 1]
        assert objective.ledger.grad.tolist() == pytest.approx(
            [expected.item(), 0, 4, 0, 0, 1, 0, 0, *reached], rel=1e-6
        )
        assert not objective.ledger.detach().any()
    assert len(LEDGER) == len(objective.totals(1))


def test_the_totals_before_a_backward_are_a_mistake_of_ours() -> None:
    """Reading a ledger that was never filled must not give zeros."""
    with pytest.raises(AssertionError, match="backward did not run"):
        objective_of(lambda m, b: None).totals(1)


COUNTS = st.one_of(
    st.integers(0, 2**30),
    st.floats(0, 1e9, allow_nan=False),
    st.floats(0, 1e-3, allow_nan=False),
    st.integers(0, 2**20).map(lambda n: n / 8),
)


@settings(max_examples=300)
@given(counts=st.lists(COUNTS, min_size=1, max_size=12), world=st.sampled_from([1, 2, 3, 7, 64]), tensor=st.booleans())
def test_a_count_of_any_size_is_that_of_float64_after_a_sum_in_float32(counts, world, tensor) -> None:
    """Micro-batches of billions of tokens and of weights of 1/60,000 alike; whole counts are exact.

    The sum is DDP's: each part divided by the number of ranks, added up, and multiplied again.
    """
    ledgers = []
    for count in counts:
        wide = torch.tensor(count, dtype=torch.float64)
        objective = objective_of(lambda m, b, count=wide if tensor else count: Loss(m(b).sum(), count))
        objective(torch.zeros(1, 3), 1.0, (0.0, 1.0, 0.0)).backward()
        ledgers.append(objective.totals(1))

    summed = sum(ledger * torch.tensor(1 / world, dtype=torch.float32) for ledger in ledgers) * world
    totals = read_totals(summed)

    expected = math.fsum(float(count) for count in counts)
    if all(isinstance(count, int) for count in counts):
        assert totals.count == expected
    assert totals.count == pytest.approx(expected, rel=1e-6, abs=1e-45)
    assert float(total_count(summed)) == pytest.approx(expected, rel=1e-6, abs=1e-45)
    assert totals.interrupt


def test_counts_on_a_device_have_the_parts_of_counts_in_numbers() -> None:
    """A tensor is cut without asking for its value; signs are kept and a count that is not finite stays visible."""
    for count in (0.0, 2.5, 4096.0, 123_456_789.25, 1 / 60_000, -7.75):
        parts = count_parts(torch.tensor([count], dtype=torch.float64))
        assert [float(part) for part in parts] == list(count_parts(count))
        assert parts[0] * 4096 + parts[1] + parts[2] == count
    assert math.isnan(read_totals(torch.tensor([1.0, *count_parts(math.nan), 0, 0, 0])).count)
    assert read_totals(torch.tensor([1.0, *count_parts(math.inf), 0, 0, 0])).count == math.inf


def test_on_a_cpu_the_ledger_is_read_at_once() -> None:
    """No lag, nothing left to drain."""
    reader = LedgerReader(torch.device("cpu"))

    read = reader.push(torch.tensor([3.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]))

    assert read == [Totals(3.0, 2.0, False, False)]
    assert reader.drain() == []


def counts_of(kind: str) -> Counts:
    """Of a task that counts samples, or reports its counts, after 8 samples."""
    return Counts(Task("mine", nn.Identity, lambda m, b: b, [1], [1], count=kind), samples=8)


def test_a_loss_that_loses_a_sample_is_refused_at_its_first_step() -> None:
    """A collate function that drops one would scale gradients wrongly; nothing is wrong before that."""
    counts = counts_of("samples")

    assert counts.check(8, 2, 16) == ""
    with pytest.raises(PacelineError, match="counts 7 where batch 3 has 8 samples") as caught:
        counts.check(7, 3, 24)

    assert "collate" in caught.value.hint


def test_a_batch_that_counts_nothing_is_noted_once_and_a_negative_count_refused() -> None:
    """All weights 0: there is no mean. Below 0, the mean would turn the gradient around."""
    counts = counts_of("reported")

    assert "step 2: the counts of the loss add up to 0" in counts.check(0.0, 2, 16)
    assert counts.check(0.0, 3, 24) == ""
    assert counts.check(1e-5, 4, 32) == ""
    with pytest.raises(PacelineError, match="counts -3 at step 5"):
        counts.check(-3.0, 5, 40)


GRADIENT = torch.ones((), requires_grad=True)


@pytest.mark.parametrize(
    ("loss", "samples", "words"),
    [
        (torch.ones(()), 3, "returned a tensor of shape .., not a Loss"),
        (None, 3, "returned None, not a Loss"),
        (Loss(1.5, 3), 3, "returned a sum that is a float"),
        (Loss(torch.ones(3, requires_grad=True), 3), 3, "is no single number"),
        (Loss(torch.ones(()), 3), 3, "does not depend on the model's parameters"),
        (Loss(GRADIENT, 1), 3, "counts 1 where the batch has 3 samples"),
        (Loss(GRADIENT, torch.tensor(4)), 3, "counts 4 where the batch has 3 samples"),
    ],
)
def test_a_loss_that_breaks_its_contract_is_refused_in_words(loss: object, samples: int, words: str) -> None:
    """Instead of a wrong mean."""
    with pytest.raises(PacelineError, match=words) as caught:
        check_loss(loss, "mine", samples)

    assert "task mine" in caught.value.what
    assert caught.value.hint


def test_a_loss_that_keeps_its_contract_passes() -> None:
    """Where only the loss knows the count, any count is right."""
    check_loss(Loss(GRADIENT, 3), "t", 3)
    check_loss(Loss(GRADIENT, torch.tensor(17.5)), "t", None)
