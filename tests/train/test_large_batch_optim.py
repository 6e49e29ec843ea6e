"""LARS, LAMB, NovoGrad and Muon against steps that were computed elsewhere, plain numpy, and torch's own Muon."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from paceline.tasks.models.cnn import FashionCNN
from paceline.train.optim.build import build_optimizer
from paceline.train.optim.layerwise import orthogonalised
from paceline.train.optim.table import OPTIMIZERS, Settings

LAYERWISE = ["lars", "lamb", "novograd", "muon"]
GRADIENTS = ([0.3, 0.4], [-0.6, 0.8], [0.0, 2.0])
STEPS = {
    "lars": [(2.997, 3.996), (2.997011843, 3.988404), (2.996949562, 3.976603018)],
    "lamb": [(2.648158850, 3.644742621), (2.792826669, 3.218080972), (2.906687504, 2.807477794)],
    "novograd": [(2.937, 3.916), (2.990767304, 3.676878268), (3.038855473, 3.102887156)],
}
"""Reference steps from w = (3, 4); for each at the settings below."""
SETTINGS = {
    "lars": Settings(lr=1.0, momentum=0.9, weight_decay=0.01, trust=1e-3),
    "lamb": Settings(lr=0.1, weight_decay=0.01, eps=1e-6),
    "novograd": Settings(lr=0.1, weight_decay=0.01, betas=(0.95, 0.98)),
}


def settings_of(name: str, **changes: object) -> Settings:
    """An optimizer's own defaults."""
    entry = OPTIMIZERS[name]
    momentum = entry.momentum if "momentum" in entry.takes else 0.0
    own = Settings(entry.lr, momentum, False, 0.01, entry.betas, entry.eps, entry.trust)
    return replace(own, **changes)  # type: ignore[arg-type]


def one_matrix(values: list[float], dtype: torch.dtype = torch.float64) -> nn.Linear:
    """A layer whose weight is (1, n) `values`."""
    model = nn.Linear(len(values), 1, bias=False).to(dtype)
    model.weight.data.copy_(torch.tensor([values]))
    return model


def stepped(name: str, settings: Settings, gradients: object = GRADIENTS, scale: float = 1.0) -> list[list[float]]:
    """Weights after each gradient."""
    model = one_matrix([3.0, 4.0])
    optimizer = build_optimizer(name, model, settings)
    found = []
    for gradient in gradients:  # type: ignore[attr-defined]
        model.weight.grad = scale * torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        found.append(model.weight.flatten().tolist())
    return found


@pytest.mark.parametrize("name", sorted(STEPS))
def test_three_steps_are_those_of_the_reference(name: str) -> None:
    """To 1e-8: the papers' updates, as independent implementations agree on them."""
    np.testing.assert_allclose(stepped(name, SETTINGS[name]), STEPS[name], rtol=0, atol=1e-8)


def test_lamb_takes_the_step_of_a_clipped_gradient() -> None:
    """What clipping to a length of 1 leaves of the third one, the other two being no longer: libraries hide that."""
    found = stepped("lamb", SETTINGS["lamb"], (*GRADIENTS[:2], [0.0, 1.0]))

    np.testing.assert_allclose(found, [*STEPS["lamb"][:2], (2.897581147, 2.805060683)], rtol=0, atol=1e-8)


def test_novograd_without_memory_of_the_norm_is_the_reference_too() -> None:
    """beta2 = 0: each gradient is divided by its own length."""
    found = stepped("novograd", replace(SETTINGS["novograd"], betas=(0.95, 0.0)))

    np.testing.assert_allclose(found, [(2.937, 3.916), (2.934213, 3.752284), (2.928631, 3.493002)], rtol=0, atol=1e-6)


def test_lars_adapts_without_weight_decay() -> None:
    """A known library turns the adaptation off there, and takes a step of (0.3, 0.4) instead of a thousandth."""
    ((first, second), *_) = stepped("lars", replace(SETTINGS["lars"], weight_decay=0.0))

    assert (first, second) == pytest.approx((2.997, 3.996), abs=1e-12)


@pytest.mark.parametrize("name", LAYERWISE)
def test_gradients_a_thousand_times_as_long_make_the_same_steps(name: str) -> None:
    """What layer-wise optimizers are for; eps is made too small to matter."""
    # LARS multiplies its decay by the ratio, too, so only without decay is its step the same.
    settings = replace(settings_of(name), eps=1e-30, weight_decay=0.0 if name == "lars" else 0.01)

    np.testing.assert_allclose(stepped(name, settings), stepped(name, settings, scale=1000.0), rtol=0, atol=2e-8)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_gradients_are_left_as_they_were(name: str) -> None:
    """Whoever logs their norm after the step sees what they were; some libraries overwrite them."""
    model = FashionCNN().double()
    optimizer = build_optimizer(name, model, settings_of(name))
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    before = [p.grad.clone() for p in model.parameters()]

    optimizer.step()
    optimizer.step()

    assert all(torch.equal(p.grad, b) for p, b in zip(model.parameters(), before, strict=True))


class Layers(nn.Module):
    """A matrix, a bias and a norm, in float64, with gradients set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Linear(3, 2).double()
        self.norm = nn.LayerNorm(2).double()


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_biases_and_norms_have_no_trust_ratio_and_no_decay(name: str) -> None:
    """Plain momentum, and plain Adam, worked out in numpy over three steps."""
    torch.manual_seed(1)
    model = Layers()
    settings = settings_of(name, lr=0.01, weight_decay=0.5)
    optimizer = build_optimizer(name, model, settings)
    free = {n: p for n, p in model.named_parameters() if n != "matrix.weight"}
    expected = {n: p.detach().numpy().copy() for n, p in free.items()}
    memory = {n: [np.zeros_like(e), np.zeros_like(e)] for n, e in expected.items()}

    for step in range(1, 4):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        for n, p in free.items():
            g = p.grad.numpy()
            if name == "lars":
                memory[n][0] = settings.momentum * memory[n][0] + g
                expected[n] -= 0.01 * memory[n][0]
            else:
                beta1, beta2 = settings.betas
                memory[n][0] = beta1 * memory[n][0] + (1 - beta1) * g
                memory[n][1] = beta2 * memory[n][1] + (1 - beta2) * g**2
                top = memory[n][0] / (1 - beta1**step)
                expected[n] -= 0.01 * top / (np.sqrt(memory[n][1] / (1 - beta2**step)) + settings.eps)
        optimizer.step()

    for n, p in free.items():
        np.testing.assert_allclose(p.detach().numpy(), expected[n], rtol=1e-10)


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_a_layer_at_zero_leaves_it(name: str) -> None:
    """Its ratio is 1; it would be 0, and the layer would stay for ever."""
    model = one_matrix([0.0, 0.0])
    optimizer = build_optimizer(name, model, settings_of(name))
    model.weight.grad = torch.ones_like(model.weight)

    optimizer.step()

    assert bool((model.weight < 0).all())


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_layer_without_any_gradient_stays_finite(name: str) -> None:
    """Zero gradients, as of a dead layer: no division by zero."""
    model = one_matrix([3.0, 4.0], torch.float32)
    optimizer = build_optimizer(name, model, settings_of(name))
    for _ in range(3):
        model.weight.grad = torch.zeros_like(model.weight)
        optimizer.step()

    assert bool(torch.isfinite(model.weight).all())


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_saved_and_loaded_optimizer_goes_on_to_the_bit(name: str, layout: torch.memory_format) -> None:
    """Also with filters whose channels are last in memory."""

    def work(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator).to(memory_format=torch.preserve_format)
                p.grad = torch.empty_like(p).copy_(p.grad)
            optimizer.step()

    torch.manual_seed(0)
    model = FashionCNN().to(memory_format=layout)
    optimizer = build_optimizer(name, model, settings_of(name))
    work(model, optimizer, range(3))
    other = copy.deepcopy(model)
    again = build_optimizer(name, other, settings_of(name, lr=77.0))
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    work(model, optimizer, range(3, 6))
    work(other, again, range(3, 6))

    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_muons_matrices_are_stepped_as_torchs_own_does_it() -> None:
    """Bit for bit in float32 over five steps, with decay."""
    torch.manual_seed(0)
    ours = nn.Linear(12, 7, bias=False)
    theirs = copy.deepcopy(ours)
    optimizer = build_optimizer("muon", ours, settings_of("muon", lr=0.02, weight_decay=0.1))
    reference = torch.optim.Muon(
        theirs.parameters(), lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(5):
        ours.weight.grad = torch.randn_like(ours.weight)
        theirs.weight.grad = ours.weight.grad.clone()
        optimizer.step()
        reference.step()

    assert torch.equal(ours.weight, theirs.weight)


def test_muon_leaves_biases_and_norms_to_adamw() -> None:
    """Bit for bit as AdamW without decay steps them; the rate set from outside reaches both parts."""
    torch.manual_seed(0)
    model = FashionCNN()
    kept = [p for p in model.parameters() if p.ndim == 1]
    copies = [nn.Parameter(p.detach().clone()) for p in kept]
    optimizer = build_optimizer("muon", model, settings_of("muon"))
    reference = torch.optim.AdamW(copies, lr=1.0, weight_decay=0.0, fused=True)
    for rate in (0.01, 0.02):
        for group in (*optimizer.param_groups, *reference.param_groups):
            group["lr"] = rate
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        for p, other in zip(kept, copies, strict=True):
            other.grad = p.grad.clone()
        optimizer.step()
        reference.step()

    assert all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))


def test_muon_sees_a_filter_as_one_row_an_output() -> None:
    """Whatever its memory layout: the step of the flattened matrix."""
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 8, 3, bias=False).double()
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    flat = nn.Linear(27, 8, bias=False).double()
    flat.weight.data.copy_(plain.weight.flatten(1))
    gradient = torch.randn_like(plain.weight)
    for model, shape in ((plain, None), (last, None), (flat, (8, 27))):
        optimizer = build_optimizer("muon", model, settings_of("muon"))
        model.weight.grad = gradient.reshape(shape) if shape else torch.empty_like(model.weight).copy_(gradient)
        optimizer.step()

    torch.testing.assert_close(plain.weight.flatten(1), flat.weight, rtol=1e-12, atol=0)
    torch.testing.assert_close(last.weight, plain.weight, rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(20, 20), (6, 30), (30, 6)])
def test_singular_values_are_moved_near_one(shape: tuple[int, int]) -> None:
    """Those from 0.01 of the norm on come out within [0.68, 1.14]; singular vectors stay."""
    torch.manual_seed(0)
    u, _, vh = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    values = torch.logspace(0, -1.7, min(shape), dtype=torch.float64)
    values = values / values.norm()
    assert values.min() >= 0.003

    found = u.T @ orthogonalised(u @ torch.diag(values) @ vh) @ vh.T

    kept = values >= 0.01
    diagonal = found.diagonal()
    assert float(diagonal[kept].min()) >= 0.68
    assert float(diagonal.max()) <= 1.14
    assert float((found - torch.diag(diagonal)).abs().max()) < 1e-10


def test_in_bfloat16_the_singular_values_of_a_random_matrix_come_as_near() -> None:
    """Of a Gaussian one of 128 x 32 in float32: 0.683 to 1.051, as computed elsewhere for another draw."""
    torch.manual_seed(0)

    values = torch.linalg.svdvals(orthogonalised(torch.randn(128, 32)).double())

    assert float(values.min()) == pytest.approx(0.683, abs=0.02)
    assert float(values.max()) == pytest.approx(1.051, abs=0.02)


def test_the_scalar_map_of_the_iteration_is_the_one_computed_elsewhere() -> None:
    """x in [0.1, 1] comes to [0.681831, 1.134357], with a slope of 484.88 at 0; 0.001 to 0.47054 by hand."""

    def mapped(x: float) -> float:
        # A matrix of norm 1 whose first singular value is x.
        rest = (1 - x * x) ** 0.5
        return float(orthogonalised(torch.diag(torch.tensor([x, rest], dtype=torch.float64)))[0, 0])

    values = [mapped(x) for x in np.linspace(0.1, 0.9999, 4000)]

    assert min(values) == pytest.approx(0.681831, abs=2e-5)
    assert max(values) == pytest.approx(1.134357, abs=2e-5)
    assert mapped(0.001) == pytest.approx(0.47054, abs=1e-5)
    assert mapped(1e-7) / 1e-7 == pytest.approx(484.88, abs=0.01)
