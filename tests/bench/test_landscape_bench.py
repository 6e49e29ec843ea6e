"""The landscape benchmark: its plain loop is right, contestants that disagree are caught, gates say what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import landscape as bench
import plain_landscape as plain
from paceline.tasks.data.catalog import CATALOG, find_faults
from paceline.tasks.data.obtain import cache_root

REAL_CACHE = cache_root()


@pytest.fixture
def small():
    """A linear classifier of 4x4 images with 51 weights, and two uneven batches of noise."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (21, 4, 4), generator=generator, dtype=torch.uint8)
    labels = torch.randint(3, (21,), generator=generator)
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), plain.batches_of(images, labels, 16)


def mean_loss(model, batches, flat):
    """The mean loss at flat weights, by functional_call and one batch of everything."""
    shapes = [(name, p.shape, p.numel()) for name, p in model.named_parameters()]
    parts = flat.split([count for _, _, count in shapes])
    state = {name: part.view(shape) for (name, shape, _), part in zip(shapes, parts, strict=True)}
    images = torch.cat([one for one, _ in batches])
    labels = torch.cat([one for _, one in batches])
    return F.cross_entropy(torch.func.functional_call(model, state, images), labels)


def test_the_plain_loops_eigenvalues_are_those_of_the_whole_hessian(small):
    """Against all second derivatives, taken at once, and numpy's eigenvalues."""
    model, batches = small
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    hessian = torch.autograd.functional.hessian(lambda at: mean_loss(model, batches, at), flat)

    values, products = plain.eigenvalues(model, batches, top=3, tolerance=1e-6)

    np.testing.assert_allclose(values, np.linalg.eigvalsh(hessian.double().numpy())[::-1][:3], rtol=1e-4)
    assert products > 3


def test_the_plain_loops_surface_is_the_loss_at_each_point(small):
    """Rows along the second direction, columns along the first; the weights come back."""
    model, batches = small
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    directions = torch.randn(2, 51, generator=torch.Generator().manual_seed(1))

    loss, accuracy = plain.surface(model, batches, directions, [-1.0, 0.0, 0.5])

    expected = mean_loss(model, batches, flat + 0.5 * directions[0] - 1.0 * directions[1])
    assert loss[0, 2] == pytest.approx(float(expected), rel=1e-5)
    assert loss[1, 1] == pytest.approx(float(mean_loss(model, batches, flat)), rel=1e-5)
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    assert torch.equal(torch.cat([p.detach().flatten() for p in model.parameters()]), flat)


def taken(all_s=10.0, surface_s=6.0, eigenvalues_s=2.0, loss=1.0, value=5.0):
    """A measurement with one number of each kind."""
    return bench.Taken(all_s, surface_s, eigenvalues_s, np.full((2, 2), loss), np.array([value, 1.0]))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (taken(loss=1.0005, value=5.04), ""),
        (taken(loss=1.002), "loss of a and b differ by 0.002, more than 0.001"),
        (taken(value=5.1), "eigenvalues of a and b differ by 0.02, more than 0.01"),
        (taken(loss=float("nan")), "loss of a and b differ by nan, more than 0.001"),
    ],
)
def test_contestants_that_compute_something_else_are_caught(other, said):
    """Losses within 0.1 % and eigenvalues within 1 %; what is not a number never agrees."""
    assert bench.disagreement({"a": taken(), "b": other}) == said


def test_gates_are_judged_on_medians_of_both_times():
    """17 s against 10 s is exactly 1.7 times as fast and meets that gate; 16 s falls short of it."""
    good = {"paceline-2": [taken(10.0, 5.0, 5.0)], "loop-1": [taken(17.0, 8.0, 8.0)]}

    (line,) = bench.gate_lines(good)

    assert "all of it 1.700 meets 1.7" in line
    assert "the work 1.600 FALLS SHORT OF 1.7" in line


def test_three_rounds_give_an_interval():
    """The ratio of medians comes with its bootstrap interval."""
    found = {"paceline-1": [taken(10.0)] * 3, "loop-1": [taken(12.0), taken(13.0), taken(14.0)]}

    (line,) = bench.gate_lines(found)

    assert "all of it 1.300 [1.200, 1.400] meets 1" in line


@pytest.mark.slow
def test_both_compute_the_same(tmp_path):
    """The tool and the loop, as they are started, agree about a small surface and the largest eigenvalue."""
    if find_faults(REAL_CACHE, CATALOG["fashion-mnist"]):
        pytest.skip("Fashion-MNIST is not in the cache (paceline data fetch fashion-mnist)")
    size = bench.Size(points=3, samples=128, curvature_samples=64, chunk=64, top=1, tolerance=1e-2)
    stage = bench.Stage(tmp_path, REAL_CACHE, size, steps=10)

    found = {name: stage.measure(name) for name in ("paceline-2", "loop-1")}

    assert bench.disagreement(found) == ""
    assert all(one.all_s > one.work_s > 0 for one in found.values())
    assert found["loop-1"].loss.std() > 0


def test_a_benchmark_that_was_stopped_goes_on_with_what_is_missing(tmp_path):
    """A failure in the second round leaves the first round's files, and the next call measures only the rest."""
    asked = []

    class Broken:
        def measure(self, name):
            asked.append(name)
            if len(asked) == 4:
                raise RuntimeError("ended with 1")
            return bench.Taken(2.0, 1.0, 0.5, np.ones((2, 2)), np.array([3.0]))

    with pytest.raises(RuntimeError, match="ended with 1"):
        bench.carry_out(["paceline-1", "loop-1"], 2, tmp_path, Broken)
    found = bench.carry_out(["paceline-1", "loop-1"], 2, tmp_path, Broken)

    assert len(asked) == 5
    assert [len(many) for many in found.values()] == [2, 2]
    assert found["loop-1"][0].work_s == 1.5
    np.testing.assert_array_equal(found["loop-1"][0].loss, np.ones((2, 2)))
