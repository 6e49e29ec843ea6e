"""Batch norm differentiated twice, against torch's own."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from paceline.curvature.batch_norm import check_norms, measuring
from paceline.records.errors import PacelineError

CASES = [
    (nn.BatchNorm1d, (7, 3)),
    (nn.BatchNorm1d, (7, 3, 4)),
    (nn.BatchNorm2d, (5, 3, 4, 2)),
    (nn.BatchNorm3d, (4, 3, 2, 3, 2)),
]


def norm_of(kind: type[nn.Module], *, affine: bool = True) -> nn.Module:
    """With parameters and statistics that are not the initial ones."""
    torch.manual_seed(3)
    norm = kind(3, affine=affine).double()
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        if affine:
            norm.weight.copy_(torch.tensor([0.7, -1.3, 0.0]))  # a weight of zero still has a gradient
            norm.bias.normal_()
    return norm


def second(norm: nn.Module, x: Tensor) -> list[Tensor]:
    """Derivatives of <gradient, fixed vectors> of a loss that is not linear in the output."""
    inputs = [x, *norm.parameters()]
    gradients = torch.autograd.grad((norm(x) ** 3).sum(), inputs, create_graph=True)
    generator = torch.Generator().manual_seed(9)
    vectors = [torch.randn(g.shape, generator=generator, dtype=g.dtype) for g in gradients]
    return [*gradients, *torch.autograd.grad(gradients, inputs, vectors)]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", ["batch", "saved"])
@pytest.mark.parametrize(("module", "shape"), CASES, ids=["1d", "1d length", "2d", "3d"])
def test_first_and_second_derivatives_are_torchs(
    module: type[nn.Module], shape: tuple[int, ...], kind: str, affine: bool
) -> None:
    """In every shape, affine or not, by the batch's statistics or the saved ones; buffers do not move."""
    norm = norm_of(module, affine=affine)
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    saved = norm.running_mean.clone()
    reference = norm_of(module, affine=affine).train(kind == "batch")
    wanted = second(reference, x)

    with measuring(norm.eval(), kind, twice=True):
        found = second(norm, x)

    for ours, torchs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-11)
    assert torch.equal(norm.running_mean, saved)
    assert "forward" not in vars(norm)


@pytest.mark.parametrize("kind", ["batch", "saved"])
def test_layouts_mix(kind: str) -> None:
    """Channels-last values with a gradient that is laid out otherwise, and the other way round."""
    norm = norm_of(nn.BatchNorm2d).eval()
    plain = torch.randn(5, 3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    results = []
    for x_last, g_last in itertools.product((False, True), repeat=2):
        layout = torch.channels_last if x_last else torch.contiguous_format
        x = plain.clone(memory_format=layout).requires_grad_()
        cotangent = plain.cos().clone(memory_format=torch.channels_last if g_last else torch.contiguous_format)
        with measuring(norm, kind, twice=True):
            first = torch.autograd.grad(norm(x), x, cotangent.requires_grad_(), create_graph=True)[0]
            results.append(torch.autograd.grad(first, [x, cotangent], plain.sin(), materialize_grads=True))

    for found in results[1:]:
        for ours, other in zip(found, results[0], strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-12, atol=1e-13)


class Ghost(nn.BatchNorm2d):
    """Another grouping in training, torch's in eval mode."""

    def forward(self, values: Tensor) -> Tensor:
        """Halves, each by itself."""
        if not self.training:
            return super().forward(values)
        return torch.cat([super(Ghost, self).forward(half) for half in values.chunk(2)])


class Doubled(nn.BatchNorm2d):
    """No batch norm at all."""

    def forward(self, values: Tensor) -> Tensor:
        """Twice of it."""
        return 2 * super().forward(values)


def test_a_norm_that_groups_otherwise_in_training_is_measured_as_a_plain_one() -> None:
    """By the statistics of the whole chunk, without calling its own forward."""
    norm = norm_of(Ghost).eval()
    x = torch.randn(6, 3, 2, 2, dtype=torch.float64)

    check_norms(norm, "batch", 6)
    with measuring(norm, "batch", twice=False):
        found = norm(x)

    torch.testing.assert_close(found, norm_of(nn.BatchNorm2d).train()(x))


def test_a_norm_that_computes_something_else_is_refused_by_name() -> None:
    """It would be replaced by a plain one in silence."""
    model = nn.Sequential(nn.Conv2d(1, 3, 1), norm_of(Doubled))

    with pytest.raises(PacelineError, match="the layer 1, a Doubled, is no batch norm"):
        check_norms(model, "batch", 6)


def test_a_norm_without_saved_statistics_takes_the_batchs() -> None:
    """As torch does in eval mode."""
    norm = nn.BatchNorm1d(3, track_running_stats=False).double().eval()
    x = torch.randn(6, 3, dtype=torch.float64)

    with measuring(norm, "saved", twice=True):
        found = norm(x)

    torch.testing.assert_close(found, norm(x))


def test_a_forward_of_the_instance_comes_back() -> None:
    """What somebody else had put in its place is there again afterwards."""
    norm = norm_of(nn.BatchNorm1d)
    theirs = norm.forward
    norm.forward = theirs

    with measuring(norm, "batch", twice=True):
        assert norm.forward is not theirs

    assert norm.forward is theirs
