"""Evaluation over ranks: each sample once, and the numbers of the whole set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional

from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import Exit
from paceline.train.recorder import trained_parameters
from tests.train import ranks

SIZES = [1, 2, 7, 8, 53]


def whole_set(samples: int) -> dict[str, tuple[float, float]]:
    """All numbers from one forward of all samples, means by numpy."""
    x, y = ranks.points(samples)
    with torch.no_grad():
        logits = ranks.network().eval()(x)
    losses = functional.cross_entropy(logits, y, reduction="none").numpy()
    rows = ranks.confidence(logits, (x, y))
    expected = {
        "loss": (float(np.mean(losses)), samples),
        "accuracy": (float(np.mean(logits.numpy().argmax(axis=1) == y.numpy())), samples),
        "order": (ranks.order_of(rows), samples),
    }
    if samples > 20:
        expected["auc"] = (float(roc_auc_score(y.numpy() == 0, logits[:, 0].numpy())), samples)
    return expected


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_measures_are_those_of_the_whole_set_on_any_number_of_ranks(world: int, kind: str) -> None:
    """Means, and metrics that need all rows in order (scikit-learn's AUC); fewer samples than ranks, too."""
    results = run_ranks(ranks.evaluated, world, SIZES, kind)

    for measured in results:
        for samples, found in zip(SIZES, measured, strict=True):
            expected = whole_set(samples)
            assert found.keys() == expected.keys()
            for name, (value, count) in found.items():
                assert value == pytest.approx(expected[name][0], rel=1e-12), (samples, name)
                assert count == expected[name][1]
    assert all(measured == results[0] for measured in results)


def test_samples_that_get_lost_are_an_error_on_every_rank() -> None:
    """A collate function that drops one: no number is reported, and no rank waits."""
    results = run_ranks(ranks.evaluated, 2, [8, 53], "short", timeout_s=30)

    assert results[0] == results[1]
    for what, why, code in results[0]:
        assert "samples were evaluated where the set has" in what
        assert why
        assert code == Exit.FAILED
    assert results[0][0][0] == "6 samples were evaluated where the set has 8"


def test_batch_norm_evaluates_with_the_mean_of_all_ranks_statistics() -> None:
    """Not with each rank's own; numpy takes the mean."""
    samples = 11
    results = run_ranks(ranks.evaluated_with_statistics, 3, samples)

    model = ranks.network(norm=True).eval()
    for name, buffer in model.named_buffers():
        every = np.stack([result["buffers"][name] for result in results])
        buffer.copy_(torch.from_numpy(np.asarray(every.mean(axis=0) if "running" in name else every[0])))
    x, y = ranks.points(samples)
    with torch.no_grad():
        expected = functional.cross_entropy(model(x), y).item()
    assert [result["loss"] for result in results] == pytest.approx([expected] * 3, rel=1e-12)
    assert not np.array_equal(results[0]["buffers"]["1.running_mean"], results[1]["buffers"]["1.running_mean"])


def test_only_what_is_trained_counts_as_a_parameter() -> None:
    """Three weights; the frozen bias and the statistics are none."""
    model = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1, affine=False))
    model[0].bias.requires_grad_(False)

    assert trained_parameters(model) == 3
