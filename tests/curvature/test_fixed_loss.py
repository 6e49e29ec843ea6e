"""The loss as a function of the weights: right numbers, and no trace left behind."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from paceline.curvature import fixed_loss
from paceline.curvature.fixed_loss import FixedLoss
from paceline.records.errors import PacelineError
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Arrays, Loss, Task
from tests.curvature.models import ConvNet, Weights, conv_model, conv_task, images, quadratic

LIKE = Like(torch.device("cpu"), torch.float64, channels_last=False)
SAMPLES, CHUNK = 50, 20  # chunks of 17, 17 and 16


def fixed(model: nn.Module, *, like: Like = LIKE, **settings: Any) -> FixedLoss:
    """On the first 50 of 60 images."""
    return FixedLoss(conv_task(), model, images(60, like.dtype), like, samples=SAMPLES, chunk=CHUNK, **settings)


def plain_loss(model: ConvNet, flat: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The mean loss and accuracy written out with torch's functions, for automatic differentiation."""
    place, weights = 0, {}
    for name, parameter in model.named_parameters():
        weights[name] = flat[place : place + parameter.numel()].view(parameter.shape)
        place += parameter.numel()
    x, labels = images(60, flat.dtype).columns
    total, right = flat.new_zeros(()), flat.new_zeros(())
    for start, stop in ((0, 17), (17, 34), (34, 50)):

        def norm(values: Tensor, module: nn.Module, weight: Tensor | None, bias: Tensor | None) -> Tensor:
            dims = [d for d in range(values.ndim) if d != 1]
            shape = [1, -1] + [1] * (values.ndim - 2)
            mean, variance = values.mean(dims), values.var(dims, unbiased=False)
            if kind == "saved":
                mean, variance = module.running_mean, module.running_var
            out = (values - mean.view(shape)) / (variance.view(shape) + module.eps).sqrt()
            return out if weight is None else out * weight.view(shape) + bias.view(shape)

        hidden = F.conv2d(x[start:stop], weights["conv.weight"], weights["conv.bias"], padding=1)
        hidden = torch.tanh(norm(hidden, model.norm, weights["norm.weight"], weights["norm.bias"])).flatten(1)
        hidden = F.linear(hidden, weights["dense.weight"], weights["dense.bias"])
        logits = F.linear(
            torch.tanh(norm(hidden, model.norm1, None, None)), weights["head.weight"], weights["head.bias"]
        )
        total = total + F.cross_entropy(logits, labels[start:stop], reduction="sum")
        right = right + (logits.argmax(1) == labels[start:stop]).sum()
    return total / SAMPLES, right / SAMPLES


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["batch", "saved"])
def test_value_gradient_and_hessian_are_those_of_the_loss_written_out(kind: str, channels_last: bool) -> None:
    """Value, metrics, gradient, and the whole Hessian column by column against automatic differentiation."""
    model = conv_model(channels_last=channels_last)
    like = Like(torch.device("cpu"), torch.float64, channels_last)
    loss = fixed(model, like=like, batch_norm=kind)
    point = loss.point() + 0.1 * torch.randn(loss.size, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    wanted, accuracy = plain_loss(model, point, kind)
    gradient = torch.func.grad(lambda w: plain_loss(model, w, kind)[0])(point)
    hessian = torch.autograd.functional.hessian(lambda w: plain_loss(model, w, kind)[0], point)

    value, (mean, slope) = loss.value(point), loss.gradient(point)
    products = torch.stack([loss.hvp(point, one) for one in torch.eye(loss.size, dtype=torch.float64)[::7]])

    assert value.loss == pytest.approx(float(wanted), rel=1e-13)
    assert value.metrics == {"accuracy": pytest.approx(float(accuracy), rel=1e-13)}
    assert mean == pytest.approx(value.loss, rel=1e-13)
    torch.testing.assert_close(slope, gradient, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(products, hessian[::7], rtol=1e-9, atol=1e-12)


def test_the_product_is_the_finite_difference_of_gradients() -> None:
    """Central differences, independent of every second derivative."""
    loss = fixed(conv_model())
    point, step = loss.point(), 1e-5
    direction = torch.randn(loss.size, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    direction /= direction.norm()

    product = loss.hvp(point, direction)

    slopes = [loss.gradient(point + sign * step * direction)[1] for sign in (1.0, -1.0)]
    difference = (slopes[0] - slopes[1]) / (2 * step)
    assert float((product - difference).norm() / difference.norm()) < 1e-7


@pytest.mark.parametrize("pieces", [1, 2, 48])
def test_alone_and_together_are_the_same_bits_whatever_the_pieces(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank takes no other path than many."""
    monkeypatch.setattr(fixed_loss, "_PIECES", pieces)
    loss = fixed(conv_model(torch.float32), like=Like(torch.device("cpu"), torch.float32, False))
    point = loss.point()

    assert loss.value_alone(point) == loss.value(point)


def test_a_quadratic_has_its_matrix_as_hessian() -> None:
    """L, its gradient and its Hessian times a vector in closed form; the counts are shares, not samples."""
    generator = torch.Generator().manual_seed(8)
    matrix = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    matrix = matrix + matrix.T
    task, model = quadratic(matrix)
    loss = FixedLoss(task, model, task.train_data, LIKE, samples=7, chunk=2)
    point, vector = torch.randn(2, 6, generator=generator, dtype=torch.float64)

    value, (_, slope), product = loss.value(point), loss.gradient(point), loss.hvp(point, vector)

    assert value.loss == pytest.approx(float(0.5 * point @ matrix @ point), rel=1e-12)
    torch.testing.assert_close(slope, matrix @ point, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(product, matrix @ vector, rtol=1e-12, atol=1e-12)


def state(model: nn.Module) -> list[Any]:
    """All that a measurement must not change, as bits and identities."""
    return [
        [(name, id(p), p.data_ptr(), p.stride(), p.requires_grad, p.detach().numpy().tobytes())
         for name, p in model.named_parameters()],
        [(name, id(b), b.numpy().tobytes()) for name, b in model.named_buffers()],
        [None if p.grad is None else (id(p.grad), p.grad.numpy().tobytes()) for p in model.parameters()],
        [module.training for module in model.modules()],
        ["forward" in vars(module) for module in model.modules()],
        [dict(p._backward_hooks or {}) for p in model.parameters()],
        torch.get_rng_state().numpy().tobytes(),
        np.random.get_state()[1].tobytes(),
        random.getstate(),
    ]  # fmt: skip


class Restless(ConvNet):
    """Changes what it can: buffers in eval mode, one by assignment, and every random state; fails when asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1))
        self.fails = False

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits."""
        self.calls += 1
        self.last = inputs.detach().sum().reshape(1)
        random.random()
        np.random.rand()
        torch.rand(1)
        if self.fails:
            raise RuntimeError("on purpose")
        return super().forward(inputs)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kind", ["batch", "saved"])
def test_everything_comes_back_untouched(kind: str, fails: bool) -> None:
    """Weights, memory, gradients, modes, buffers, hooks and random state, after every call, also one that raises."""
    model = Restless().double()
    model.train()
    model.head.eval()
    model.conv.bias.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    model.head.weight.register_hook(lambda gradient: gradient * 1000)
    loss = fixed(model, batch_norm=kind)
    point, vector = loss.point() * 1.1, torch.ones(loss.size, dtype=torch.float64)
    before = state(model)
    model.fails = fails

    for call in (loss.value, loss.value_alone, loss.gradient, lambda p: loss.hvp(p, vector)):
        if fails:
            with pytest.raises(RuntimeError, match="on purpose"):
                call(point)
        else:
            call(point)

        assert state(model) == before


def test_hooks_on_gradients_belong_to_training() -> None:
    """A hook that scales a gradient does not scale what is measured."""
    model = conv_model()
    wanted = fixed(model).gradient(fixed(model).point())[1]
    model.head.weight.register_hook(lambda gradient: gradient * 1000)

    found = fixed(model).gradient(fixed(model).point())[1]

    assert torch.equal(found, wanted)


def test_frozen_parameters_are_constants_and_tied_ones_count_once() -> None:
    """The flat vector has neither; the gradient of a tied weight is that of both uses."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight
            self.frozen = nn.Linear(4, 4)
            self.frozen.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.tanh(self.frozen(self.first(x))))

    torch.manual_seed(2)
    model = Tied().double()
    data = Arrays(torch.randn(12, 4, dtype=torch.float64), torch.arange(12) % 4)
    task = Task("tied", Tied, cross_entropy(), data, data)
    loss = FixedLoss(task, model, data, LIKE, samples=12, chunk=5)
    x, labels = data.columns

    def written_out(w: Tensor) -> Tensor:
        hidden = torch.tanh(F.linear(x @ w.T, model.frozen.weight, model.frozen.bias))
        return F.cross_entropy(hidden @ w.T, labels)

    point = loss.point() * 0.7
    value, (_, slope) = loss.value(point), loss.gradient(point)

    assert [(each.name, each.start, each.stop, each.shape) for each in loss.layout] == [("first.weight", 0, 16, (4, 4))]
    w = point.view(4, 4)
    assert value.loss == pytest.approx(float(written_out(w)), rel=1e-12)
    torch.testing.assert_close(slope, torch.func.grad(written_out)(w).flatten(), rtol=1e-11, atol=1e-13)


def test_the_layout_describes_the_present_weights_in_any_memory_format() -> None:
    """Each slice, viewed in its shape, is its parameter, although a channels-last one is laid out otherwise."""
    model = conv_model(channels_last=True)
    loss = fixed(model)

    point = loss.point()

    assert not model.conv.weight.is_contiguous()
    assert loss.layout[-1].stop == loss.size == len(point)
    for place, (name, parameter) in zip(loss.layout, model.named_parameters(), strict=True):
        assert place.name == name
        assert torch.equal(point[place.start : place.stop].view(place.shape), parameter)


class Items(Dataset[Any]):
    """The same images as a map-style dataset that adds noise and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        x, labels = images(60).columns
        return x[index] + 0.1 * torch.randn(2, 3, 3), int(labels[index])


def test_a_dataset_is_collated_once_and_its_noise_is_drawn_once() -> None:
    """The second value is the first, from what was kept; another start of it, too, draws the same."""
    data = Items()
    loss = FixedLoss(conv_task(), conv_model(), data, LIKE, samples=SAMPLES, chunk=CHUNK)
    point = loss.point()

    first, second = loss.value(point), loss.value(point)

    assert first == second
    assert data.calls == SAMPLES
    torch.manual_seed(99)
    again = FixedLoss(conv_task(), conv_model(), Items(), LIKE, samples=SAMPLES, chunk=CHUNK)
    assert again.value(point) == first
    assert first != fixed(conv_model()).value(point)


def test_a_loss_that_draws_random_numbers_is_a_function_of_the_weights() -> None:
    """The same point has the same loss, whatever the random state of the process; chunks draw different numbers."""
    drawn: list[float] = []

    def loss_fn(model: nn.Module, batch: Any) -> Loss:
        drawn.append(float(torch.rand(())))
        return Loss(model(None).square().sum() * drawn[-1] * len(batch[0]), len(batch[0]))

    data = Arrays(torch.zeros(6))
    task = Task("random", lambda: Weights(torch.ones(2)), loss_fn, data, data)
    loss = FixedLoss(task, Weights(torch.ones(2)), data, LIKE, samples=6, chunk=2)

    values = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        values.append(loss.value(loss.point()).loss)

    assert values[0] == values[1]
    assert len(set(drawn)) == 3


def test_the_model_does_not_need_to_be_where_it_was() -> None:
    """Training may go on between calls: `point` reads the present weights."""
    model = conv_model()
    loss = fixed(model)
    first = loss.point()
    with torch.no_grad():
        model.head.bias += 1.0

    second = loss.point()

    assert not torch.equal(first, second)
    assert loss.value(second).loss == pytest.approx(float(plain_loss(model, second, "batch")[0]), rel=1e-13)


class OnceOnly(torch.autograd.Function):
    """An operation without a second derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Its gradient."""
        return 2 * ctx.saved_tensors[0] * gradient


def alignment(w: Tensor) -> Tensor:
    """CTC, for whose backward torch has no derivative."""
    scores = torch.log_softmax(w.expand(5, 1, 3).square(), -1)
    return F.ctc_loss(scores, torch.ones(1, 2, dtype=torch.long), torch.tensor([5]), torch.tensor([2]))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda w: OnceOnly.apply(w).square().sum(), "the backward of OnceOnly is marked"),
        (lambda w: OnceOnly.apply(w).sum() + w.square().sum(), "the backward of OnceOnly is marked"),
        (lambda w: alignment(w), "_ctc_loss_backward is not implemented"),
        (lambda w: 3 * w.sum(), "does not depend on the weights"),
    ],
    ids=["marked", "marked, in a part", "torchs own", "linear"],
)
def test_a_loss_that_cannot_be_differentiated_twice_is_named(make: Any, why: str) -> None:
    """One message with the reason; the value and the gradient are still there."""
    data = Arrays(torch.zeros(4))
    task = Task(
        "odd", lambda: Weights(torch.ones(3)), lambda m, b: Loss(make(m(None)) * len(b[0]), len(b[0])), data, data
    )
    loss = FixedLoss(task, Weights(torch.ones(3)), data, Like(torch.device("cpu"), torch.float32, False), samples=4)

    assert loss.gradient(loss.point())[1].shape == (3,)
    with pytest.raises(PacelineError, match="the loss of task odd cannot be differentiated twice") as caught:
        loss.hvp(loss.point(), torch.ones(3))
    assert why in caught.value.why


def test_attention_can_be_differentiated_twice() -> None:
    """Its fused kernels cannot; the product does without them."""

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(8, 24)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.project(x).view(-1, 5, 2, 12).transpose(1, 2).chunk(3, dim=-1)
            return F.scaled_dot_product_attention(q, k, v).flatten(1)

    torch.manual_seed(4)
    data = Arrays(torch.randn(6, 5, 8, dtype=torch.float64), torch.arange(6))
    task = Task("attends", Attends, cross_entropy(), data, data)
    loss = FixedLoss(task, Attends().double(), data, LIKE, samples=6)
    point, vector = loss.point(), torch.ones(loss.size, dtype=torch.float64)

    product = loss.hvp(point, vector)

    slopes = [loss.gradient(point + sign * 1e-5 * vector)[1] for sign in (1.0, -1.0)]
    difference = (slopes[0] - slopes[1]) / 2e-5
    assert float((product - difference).norm() / difference.norm()) < 1e-6


class Greedy(torch.autograd.Function):
    """The square, whose second derivative asks for more memory than there can be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Its gradient."""
        return GreedyGradient.apply(gradient, ctx.saved_tensors[0])


class GreedyGradient(torch.autograd.Function):
    """2 g x."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient of the square."""
        return 2 * gradient * x

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        """Never comes to an end."""
        return torch.empty(1 << 58), None


@pytest.mark.parametrize("where", ["value", "gradient", "product"])
def test_running_out_of_memory_is_told_as_that(where: str) -> None:
    """Wherever it happens; on a CPU torch says it by a RuntimeError like any other."""

    def loss_fn(model: nn.Module, batch: Any) -> Loss:
        if where != "product":
            torch.empty(1 << 58)
        return Loss(Greedy.apply(model(None)).square().sum() * len(batch[0]), len(batch[0]))

    data = Arrays(torch.zeros(6))
    task = Task("greedy", lambda: Weights(torch.ones(2)), loss_fn, data, data)
    loss = FixedLoss(task, Weights(torch.ones(2)), data, LIKE, samples=6, chunk=3)
    point = loss.point()
    calls = {"value": loss.value, "gradient": loss.gradient, "product": lambda w: loss.hvp(w, torch.ones(2))}

    with pytest.raises(PacelineError, match="not enough memory for 3 samples at once") as caught:
        calls[where](point)

    assert "--chunk" in caught.value.hint
    assert "allocate memory" in caught.value.why


def switches() -> tuple[Any, ...]:
    """All that decides on TF32, by the former and the present names."""
    backends = torch.backends
    return (
        backends.cudnn.allow_tf32,
        backends.cuda.matmul.allow_tf32,
        torch.get_float32_matmul_precision(),
        backends.cudnn.conv.fp32_precision,
        backends.cudnn.rnn.fp32_precision,
        backends.cuda.matmul.fp32_precision,
    )


@pytest.fixture
def tf32_everywhere() -> Iterator[None]:
    """A program that allows itself TF32 wherever it can."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    yield
    torch.backends.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])


@pytest.mark.filterwarnings("ignore:Please use the new API")
@pytest.mark.parametrize("fails", [False, True])
def test_float32_is_float32_while_it_is_measured(tf32_everywhere: None, fails: bool) -> None:
    """No TF32 in values, gradients and products, whatever the program allows; its switches come back, also after an
    exception."""
    seen: list[tuple[Any, ...]] = []

    def loss_fn(model: nn.Module, batch: Any) -> Loss:
        seen.append(switches())
        if fails:
            raise RuntimeError("on purpose")
        return Loss(model(None).square().sum() * len(batch[0]), len(batch[0]))

    data = Arrays(torch.zeros(4))
    task = Task("watched", lambda: Weights(torch.ones(2)), loss_fn, data, data)
    loss = FixedLoss(task, Weights(torch.ones(2)), data, LIKE, samples=4)
    before = switches()

    for call in (loss.value, loss.value_alone, loss.gradient, lambda w: loss.hvp(w, torch.ones(2))):
        with pytest.raises(RuntimeError, match="on purpose") if fails else contextlib.nullcontext():
            call(loss.point())
        assert switches() == before

    assert before[:3] == (True, True, "high")
    assert seen == [(False, False, "highest", "ieee", "ieee", "ieee")] * 4


@pytest.mark.filterwarnings("ignore:Please use the new API")
def test_a_program_with_the_present_switches_only_keeps_them() -> None:
    """torch refuses to read the former ones then; what was set comes back."""
    backends = torch.backends
    before = backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision
    loss = fixed(conv_model())
    try:
        backends.cudnn.conv.fp32_precision = "ieee"
        backends.cuda.matmul.fp32_precision = "tf32"

        loss.value(loss.point())

        assert (backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision) == ("ieee", "tf32")
    finally:
        backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision = before


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"samples": 0}, "0 samples cannot be taken"),
        ({"samples": 61}, "61 samples cannot be taken"),
        ({"samples": 50, "chunk": 1}, "needs chunks of at least 2"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    """With the legal range in the hint."""
    with pytest.raises(PacelineError, match=match) as caught:
        FixedLoss(conv_task(), conv_model(), images(60), LIKE, **settings)

    assert caught.value.hint


def test_a_vector_of_another_model_is_refused() -> None:
    """As a point and as a direction."""
    loss = fixed(conv_model())

    with pytest.raises(PacelineError, match="is no point of a model"):
        loss.value(torch.zeros(3))
    with pytest.raises(PacelineError, match="is no point of a model"):
        loss.hvp(loss.point(), torch.zeros(3))


def test_a_model_without_trained_parameters_is_refused() -> None:
    """There is nothing to be a function of."""
    model = conv_model()
    model.requires_grad_(False)

    with pytest.raises(PacelineError, match="no trained parameters"):
        fixed(model)
