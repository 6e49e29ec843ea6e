"""Every optimizer at settings that are not its defaults and a rate that changes, against its recursion in numpy.

The reference steps of `test_large_batch_optim` are at default settings and a constant rate; here is the rest.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from paceline.train.optim.build import build_optimizer
from paceline.train.optim.table import OPTIMIZERS, Settings

RATES = [0.1, 0.2, 0.05, 0.3, 0.1]
DECAY = 0.1
SETTINGS = {
    "sgd": Settings(lr=1.0, momentum=0.7, nesterov=True, weight_decay=DECAY),
    "adamw": Settings(lr=1.0, betas=(0.8, 0.95), eps=1e-3, weight_decay=DECAY),
    "lars": Settings(lr=1.0, momentum=0.7, trust=0.02, weight_decay=DECAY),
    "lars, nesterov": Settings(lr=1.0, momentum=0.7, nesterov=True, trust=0.02, weight_decay=DECAY),
    "lars, no momentum": Settings(lr=1.0, trust=0.02, weight_decay=DECAY),
    "lamb": Settings(lr=1.0, betas=(0.8, 0.95), eps=1e-3, weight_decay=DECAY),
    "novograd": Settings(lr=1.0, betas=(0.7, 0.6), eps=0.05, weight_decay=DECAY),
    "muon": Settings(lr=1.0, momentum=0.6, betas=(0.8, 0.95), eps=1e-3, weight_decay=DECAY),
}
Array = np.ndarray


def name_of(case: str) -> str:
    """`lars` of `lars, nesterov`."""
    return case.split(",")[0]


def momentum_steps(w: Array, gradients: list[Array], s: Settings, adapt: bool, layerwise: bool) -> Array:
    """SGD, and LARS: v = mu v + ratio (g + decay w), w = w - lr v; the rate stands outside v."""
    decay, v = DECAY * adapt, np.zeros_like(w)
    for lr, g in zip(RATES, gradients, strict=True):
        length = np.linalg.norm(w)
        ratio = s.trust * length / (np.linalg.norm(g) + decay * length) if layerwise and adapt else 1.0
        step = ratio * (g + decay * w)
        v = s.momentum * v + step
        w = w - lr * (step + s.momentum * v if s.nesterov else v)
    return w


def adam_steps(w: Array, gradients: list[Array], s: Settings, adapt: bool, layerwise: bool) -> Array:
    """AdamW, and LAMB: its decay joins Adam's direction, which is then made as long as w."""
    (b1, b2), decay = s.betas, DECAY * adapt
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, (lr, g) in enumerate(zip(RATES, gradients, strict=True), start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        u = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + s.eps) + decay * w
        w = w - lr * u * (np.linalg.norm(w) / np.linalg.norm(u) if layerwise and adapt else 1.0)
    return w


def novograd_steps(w: Array, gradients: list[Array], s: Settings, adapt: bool) -> Array:
    """v is a number, |g|^2 at first; m is a sum."""
    (b1, b2), decay = s.betas, DECAY * adapt
    m, v = np.zeros_like(w), 0.0
    for t, (lr, g) in enumerate(zip(RATES, gradients, strict=True)):
        square = float(np.sum(g * g))
        v = square if t == 0 else b2 * v + (1 - b2) * square
        m = b1 * m + g / (math.sqrt(v) + s.eps) + decay * w
        w = w - lr * m
    return w


def muon_steps(w: Array, gradients: list[Array], s: Settings, adapt: bool) -> Array:
    """Matrices by Newton and Schulz's quintic on their singular values, found by numpy; the rest is AdamW's."""
    if not adapt:
        return adam_steps(w, gradients, s, adapt, layerwise=False)
    shape, buffer = w.shape, np.zeros_like(w)
    for lr, g in zip(RATES, gradients, strict=True):
        buffer = s.momentum * buffer + (1 - s.momentum) * g
        ahead = ((1 - s.momentum) * g + s.momentum * buffer).reshape(len(w), -1)
        left, values, right = np.linalg.svd(ahead, full_matrices=False)
        values = values / np.linalg.norm(values)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        step = 0.2 * math.sqrt(max(ahead.shape)) * (left * values) @ right
        w = w * (1 - lr * DECAY) - lr * step.reshape(shape)
    return w


Steps = Callable[[Array, list[Array], Settings, bool], Array]
RECURSIONS: dict[str, Steps] = {
    "sgd": lambda w, g, s, adapt: momentum_steps(w, g, s, adapt, layerwise=False),
    "lars": lambda w, g, s, adapt: momentum_steps(w, g, s, adapt, layerwise=True),
    "adamw": lambda w, g, s, adapt: decoupled_adam_steps(w, g, s, adapt),
    "lamb": lambda w, g, s, adapt: adam_steps(w, g, s, adapt, layerwise=True),
    "novograd": novograd_steps,
    "muon": muon_steps,
}


def decoupled_adam_steps(w: Array, gradients: list[Array], s: Settings, adapt: bool) -> Array:
    """Decay that is added to the direction, without a trust ratio, is the decoupled one."""
    return adam_steps(w, gradients, s, adapt, layerwise=False)


class Mixed(nn.Module):
    """A matrix that is wide, one that is tall, a filter, biases and a norm; float64."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(6, 4)
        self.tall = nn.Linear(3, 5)
        self.filter = nn.Conv2d(2, 3, (2, 3))
        self.norm = nn.LayerNorm((2, 3))
        self.double()


def mixed(seed: int = 0, layout: torch.memory_format = torch.channels_last) -> Mixed:
    """The same numbers each time; the norm's scale is not 1."""
    torch.manual_seed(seed)
    model = Mixed().to(memory_format=layout)
    nn.init.normal_(model.norm.weight)
    return model


def gradients_of(model: nn.Module) -> dict[str, list[Array]]:
    """Of each parameter, one a step."""
    rng = np.random.default_rng(3)
    return {name: [rng.normal(size=p.shape) for _ in RATES] for name, p in model.named_parameters()}


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """With the gradients and the rates above; gradients have their parameter's strides, as DDP gives them."""
    gradients = gradients_of(model)
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = RATES[step]
        for name, p in model.named_parameters():
            p.grad = torch.empty_like(p).copy_(torch.from_numpy(gradients[name][step]))
        optimizer.step()


def test_every_optimizer_has_a_recursion_here() -> None:
    """A new name in the table must be added above."""
    assert set(RECURSIONS) == {name_of(case) for case in SETTINGS} == set(OPTIMIZERS)


@pytest.mark.parametrize("case", sorted(SETTINGS))
def test_settings_and_a_changing_rate_are_used_as_the_recursion_says(case: str) -> None:
    """Five steps in float64: no setting is ignored, and a new rate takes effect at once on what the buffers hold."""
    model = mixed()
    start = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    gradients = gradients_of(model)

    take_steps(model, build_optimizer(name_of(case), model, SETTINGS[case]), range(len(RATES)))

    for name, p in model.named_parameters():
        adapt = name in ("wide.weight", "tall.weight", "filter.weight")
        expected = RECURSIONS[name_of(case)](start[name], gradients[name], SETTINGS[case], adapt)
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_where_the_table_says_that_decay_stands_is_where_it_stands(name: str) -> None:
    """Decoupled: (1 - lr decay) a step whatever the gradients did; coupled: the same as a part of the gradient."""
    entry = OPTIMIZERS[name]

    def moved(decay: float, lengths: list[float]) -> Array:
        """Weights (2, 1) after a step at a rate of 0.1 for each gradient, which is so many times the weights at first.

        Along the weights, since there |g + decay w| = |g| + decay |w|, of which LARS takes the right side.
        """
        model = nn.Linear(2, 1, bias=False).double()
        start = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
        model.weight.data.copy_(start)
        momentum = entry.momentum if "momentum" in entry.takes else 0.0
        settings = Settings(0.1, momentum, False, decay, entry.betas, entry.eps, entry.trust)
        optimizer = build_optimizer(name, model, settings)
        for length in lengths:
            model.weight.grad = length * start
            optimizer.step()
        return model.weight.detach().numpy()[0]

    beside = np.array([2.0, 1.0]) * (1 - 0.1 * 0.5) ** 2
    decoupled = np.allclose(moved(0.5, [0.0, 0.0]), beside, rtol=1e-12)
    coupled = np.allclose(moved(0.5, [3.0]), moved(0.0, [3.0 + 0.5]), rtol=1e-12)

    found = "decoupled" if decoupled else "coupled" if coupled else "in-update"
    assert found == entry.decay


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("adamw", {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}),
        ("lars", {"momentum": 0.9, "trust": 1e-3}),
        ("lamb", {"betas": (0.9, 0.999), "eps": 1e-6}),
        ("novograd", {"betas": (0.95, 0.98), "lr": 1e-2}),
        ("muon", {"momentum": 0.95, "lr": 1e-3}),
    ],
)
def test_defaults_are_those_of_the_papers(name: str, defaults: dict[str, object]) -> None:
    """Not those of some library that has others (NovoGrad's second beta is 0 in one, LARS's trust 0.01)."""
    entry = OPTIMIZERS[name]

    found = {setting: getattr(entry, setting) for setting in defaults}

    assert found == defaults
    assert set(defaults) - {"lr"} <= set(entry.takes)


def test_only_adamw_follows_the_equations_of_adam() -> None:
    """The rule derived from them is offered for no other: LAMB's steps have the length of weights, not of Adam's."""
    adam = [name for name, entry in OPTIMIZERS.items() if entry.adam]

    assert adam == ["adamw"]


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_parameters_without_a_gradient_stay_as_they_are(name: str) -> None:
    """Neither decay nor state for what the loss did not reach; all else is stepped."""
    model = mixed()
    optimizer = build_optimizer(name, model, SETTINGS[name])
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    unreached = {"tall.weight", "tall.bias"}
    for n, p in model.named_parameters():
        p.grad = None if n in unreached else torch.ones_like(p)

    optimizer.step()

    same = {n for n, p in model.named_parameters() if torch.equal(p, start[n])}
    assert same == unreached
    assert not any(optimizer.state.get(p) for n, p in model.named_parameters() if n in unreached)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_closure_is_called_once_with_gradients_and_its_loss_is_returned(name: str) -> None:
    """As torch's interface has it."""
    model = mixed()
    optimizer = build_optimizer(name, model, SETTINGS[name])
    inputs = torch.arange(6.0, dtype=torch.float64)
    start, calls = model.wide.weight.detach().clone(), []
    expected = model.wide(inputs).square().sum().detach()

    def closure() -> torch.Tensor:
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = model.wide(inputs).square().sum()
        loss.backward()
        return loss

    found = optimizer.step(closure)

    assert calls == [True]
    assert torch.equal(found, expected)
    assert not torch.equal(model.wide.weight, start)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))], ids=["copied", "pickled"]
)
def test_a_copy_goes_on_to_the_bit(name: str, how: Callable[[object], tuple[Mixed, torch.optim.Optimizer]]) -> None:
    """Model and optimizer copied together after two steps, as averaging and search tools do; the two are apart then."""
    model = mixed()
    optimizer = build_optimizer(name, model, SETTINGS[name])
    take_steps(model, optimizer, range(2))

    other, again = how((model, optimizer))
    take_steps(other, again, range(2, 5))
    untouched = mixed()
    take_steps(untouched, build_optimizer(name, untouched, SETTINGS[name]), range(2))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), untouched.parameters(), strict=True))
    take_steps(model, optimizer, range(2, 5))

    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (9, 9), (8, 3, 3, 3)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_muon_is_torchs_own_in_float32_whatever_the_shape(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    """Bit for bit over five steps, tall, wide, square, and filters as matrices of one row an output."""
    torch.manual_seed(0)
    model = nn.ParameterList([nn.Parameter(torch.randn(shape))])
    if len(shape) == 4:
        model[0].data = model[0].data.to(memory_format=layout)
    flat = nn.Parameter(model[0].detach().reshape(shape[0], -1).clone())
    ours = build_optimizer("muon", model, Settings(lr=0.02, momentum=0.9, weight_decay=0.1))
    theirs = torch.optim.Muon([flat], lr=0.02, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")

    for _ in range(5):
        flat.grad = torch.randn_like(flat)
        model[0].grad = torch.empty_like(model[0]).copy_(flat.grad.reshape(shape))
        ours.step()
        theirs.step()

    assert torch.equal(model[0].reshape(shape[0], -1), flat)
