"""Curvature and `paceline landscape` on a CUDA device: the CPU's numbers, and no TF32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import Paceline
from torch import nn

from paceline.curvature.fixed_loss import FixedLoss
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Arrays, Task
from tests.curvature.models import conv_model, conv_task, images

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CNN = str(Path(__file__).parents[1] / "files" / "cnn_task.py")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["batch", "saved"])
def test_value_gradient_and_product_are_the_cpus(kind: str, channels_last: bool) -> None:
    """In float64, in both memory layouts and with both kinds of batch-norm statistics."""
    found = []
    for name in ("cpu", "cuda"):
        like = Like(torch.device(name), torch.float64, channels_last)
        model = conv_model(channels_last=channels_last).to(like.device)
        loss = FixedLoss(conv_task(), model, images(60), like, samples=50, chunk=20, batch_norm=kind)
        point = loss.point()
        vector = torch.randn(loss.size, dtype=torch.float64, generator=torch.Generator().manual_seed(6)).to(point)
        value, (mean, slope), product = loss.value(point), loss.gradient(point), loss.hvp(point, vector)
        found.append((value.loss, mean, value.metrics, slope.cpu(), product.cpu()))

    (cpu, cuda) = found
    assert cuda[:2] == pytest.approx(cpu[:2], rel=1e-12)
    assert cuda[2] == cpu[2]
    torch.testing.assert_close(cuda[3], cpu[3], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(cuda[4], cpu[4], rtol=1e-10, atol=1e-12)


def smooth_loss(device: str, dtype: torch.dtype) -> FixedLoss:
    """Of two convolutions without a kink: at a ReLU's or a maximum's, rounding alone decides on the gradient."""
    torch.manual_seed(1)
    layers = (nn.Conv2d(1, 32, 3), nn.Tanh(), nn.Conv2d(32, 32, 3), nn.Tanh(), nn.Flatten(), nn.Linear(32 * 64, 4))
    model = nn.Sequential(*layers).to(device, dtype)
    x = torch.randn(100, 1, 12, 12, dtype=torch.float64)
    data = Arrays(x, torch.arange(100) % 4)
    task = Task("smooth", lambda: model, cross_entropy(), data, data)
    return FixedLoss(task, model, data, Like(torch.device(device), dtype, channels_last=False), samples=100, chunk=50)


def test_float32_has_the_accuracy_of_float32() -> None:
    """Gradient and product are within 1e-5 of float64's, as a CPU's are; TF32 rounds each factor by up to 5e-4."""
    found = []
    for dtype in (torch.float64, torch.float32):
        loss = smooth_loss("cuda", dtype)
        point = loss.point()
        vector = torch.randn(loss.size, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
        found.append((loss.gradient(point)[1].double(), loss.hvp(point, (vector / vector.norm()).to(point)).double()))

    for exact, single in zip(*found, strict=True):
        assert float((single - exact).norm() / exact.norm()) < 1e-5


def test_a_landscape_is_the_cpus(paceline: Paceline) -> None:
    """Line, eigenvalues, trace and a bound of the CNN's fresh weights, from the command line, in float64."""
    flags = ["--measure", "line,eigenvalues,trace,sam", "--points", "3", "--samples", "200", "--chunk", "50"]
    flags += ["--curvature-samples", "100", "--top", "2", "--tolerance", "1e-6", "--probes", "8"]
    flags += ["--precision", "fp64", "--workers", "1"]
    found = []
    for env in ({}, {"CUDA_VISIBLE_DEVICES": ""}):
        done = paceline("landscape", CNN, *flags, "--format", "json", env=env, timeout_s=300)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))

    cuda, cpu = found
    assert cuda["weights"] == cpu["weights"]
    assert cuda["line"]["loss"] == pytest.approx(cpu["line"]["loss"], rel=1e-10)
    assert cuda["eigenvalues"]["values"] == pytest.approx(cpu["eigenvalues"]["values"], rel=1e-6)
    assert cuda["trace"]["value"] == pytest.approx(cpu["trace"]["value"], rel=1e-8)
    assert cuda["sam"]["value"] == pytest.approx(cpu["sam"]["value"], rel=1e-6)
