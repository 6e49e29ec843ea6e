"""The built-in tasks: data, losses, networks, and what the table promises about them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from paceline.records.errors import PacelineError
from paceline.tasks import digits, linear
from paceline.tasks.classify import cross_entropy
from paceline.tasks.models.cnn import FashionCNN
from paceline.tasks.models.wide_resnet import WideResNet
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task import Arrays, Loss, Task, accuracy
from paceline.tasks.task_loader import load_task
from paceline.train.optim.table import OPTIMIZERS
from paceline.train.schedules import SHAPES


def parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters())


def test_the_best_fit_is_the_closed_form() -> None:
    """slope = cov(x, y) / var(x), intercept = mean(y) - slope mean(x); the loss is half the residual variance."""
    x, y = linear.points(400, seed=11)

    slope, intercept, loss = linear.best_fit(x, y)

    flat_x, flat_y = x[:, 0], y[:, 0]
    covariance = np.cov(flat_x, flat_y, bias=True)
    expected = covariance[0, 1] / covariance[0, 0]
    assert slope == pytest.approx(expected, rel=1e-12)
    assert intercept == pytest.approx(flat_y.mean() - expected * flat_x.mean(), rel=1e-12)
    explained = covariance[0, 1] ** 2 / covariance[0, 0]
    assert loss == pytest.approx(0.5 * (covariance[1, 1] - explained), rel=1e-10)


def test_no_other_line_is_better_than_the_best_fit() -> None:
    """The task's own loss, a little to each side of it, is larger."""
    x, y = (torch.from_numpy(column) for column in linear.points(300, seed=5))
    slope, intercept, best = linear.best_fit(x.numpy(), y.numpy())
    model = nn.Linear(1, 1).double()

    def loss(a: float, b: float) -> float:
        with torch.no_grad():
            model.weight.fill_(a)
            model.bias.fill_(b)
        result = linear.half_squared_error(model, (x, y))
        return result.sum.item() / result.count

    assert loss(slope, intercept) == pytest.approx(best, rel=1e-12)
    for da, db in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
        assert loss(slope + da, intercept + db) > best


def test_the_linear_task_is_a_noisy_line() -> None:
    """1,000 points each, different ones, around 2 x - 1 with noise 0.5."""
    task = load_task("linear", TaskOptions())
    x, y = (column[:, 0].numpy() for column in task.train_data.columns)

    residual = y - (2.0 * x - 1.0)

    assert len(task.train_data) == len(task.eval_data) == 1000
    assert not torch.equal(task.train_data.columns[0], task.eval_data.columns[0])
    assert -1 <= x.min() < -0.95
    assert 0.95 < x.max() <= 1
    assert abs(residual.std() - 0.5) < 0.05
    assert abs(residual.mean()) < 0.08


def test_digits_are_scikit_learns_and_every_fifth_is_held_out() -> None:
    """1,437 and 360, none in both, pixels from 0 to 1."""
    task = load_task("digits", TaskOptions())
    images, labels = load_digits(return_X_y=True)

    train_x, train_y = (column.numpy() for column in task.train_data.columns)
    eval_x, eval_y = (column.numpy() for column in task.eval_data.columns)

    assert (len(train_y), len(eval_y)) == (1437, 360)
    np.testing.assert_array_equal(eval_x, (images[::5] / 16).astype(np.float32))
    np.testing.assert_array_equal(eval_y, labels[::5])
    np.testing.assert_array_equal(train_y, np.delete(labels, np.s_[::5]))
    np.testing.assert_array_equal(train_x, np.delete(images / 16, np.s_[::5], axis=0).astype(np.float32))
    assert set(eval_y) == set(range(10))
    assert (train_x.min(), train_x.max()) == (0, 1)


@pytest.mark.parametrize("name", ["linear", "digits"])
def test_small_tasks_have_no_batch_norm(name: str) -> None:
    """So their results cannot depend on the number of workers."""
    model = load_task(name, TaskOptions()).model()

    assert not [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert not list(model.buffers())


@pytest.mark.parametrize("name", ["linear", "digits"])
def test_a_task_counts_its_samples_as_it_says(name: str) -> None:
    """The sum of a batch is the sum of its samples' losses, one at a time."""
    task = load_task(name, TaskOptions())
    model = task.model().double()
    batch = tuple(c[:7].double() if c.is_floating_point() else c[:7] for c in task.train_data.columns)

    together = task.loss(model, batch)
    alone = [task.loss(model, tuple(c[i : i + 1] for c in batch)) for i in range(7)]

    assert task.count == "samples"
    assert together.count == 7
    assert [each.count for each in alone] == [1] * 7
    assert together.sum.item() == pytest.approx(sum(each.sum.item() for each in alone), rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing_is_for_training_only(smoothing: float) -> None:
    """Training: the textbook's mixture with the uniform distribution. Evaluation: plain cross entropy."""
    model = nn.Linear(4, 5).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    loss = cross_entropy(smoothing)

    training = loss(model, (x, labels))
    evaluating = loss(model.eval(), (x, labels))

    logits = model(x).detach().numpy()
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    plain = -logs[np.arange(6), labels.numpy()].sum()
    assert evaluating.sum.item() == pytest.approx(plain, rel=1e-12)
    expected = (1 - smoothing) * plain + smoothing * -logs.mean(axis=1).sum()
    assert training.sum.item() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(training.outputs, evaluating.outputs)


def test_accuracy_counts_right_answers() -> None:
    """Two of three."""
    logits = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])

    assert accuracy(logits, (torch.zeros(3), torch.tensor([1, 1, 1]))) == (2, 3)


def test_the_cnn_has_421738_parameters_and_ten_logits() -> None:
    """Convolutions 288 + 18,432, norms 64 + 128, linear layers 401,536 + 1,290."""
    model = FashionCNN()

    logits = model(torch.randn(3, 1, 28, 28))

    assert parameters(model) == 288 + 18_432 + 64 + 128 + 401_536 + 1_290 == 421_738
    assert logits.shape == (3, 10)


def wide_resnet_parameters(width: int, channels: int) -> int:
    """Counted by hand from the paper's table for depth 16: three groups of two blocks."""
    total = channels * 16 * 9
    inside = 16
    for out in (16 * width, 32 * width, 64 * width):
        for _ in range(2):
            total += 2 * inside + inside * out * 9 + 2 * out + out * out * 9
            if inside != out:
                total += inside * out
            inside = out
    return total + 2 * inside + inside * 10 + 10


@pytest.mark.parametrize(
    ("width", "channels", "expected"), [(10, 3, 17_116_634), (10, 1, 17_116_346), (1, 3, 175_066), (1, 1, 174_778)]
)
def test_wide_resnets_have_the_size_of_the_paper(width: int, channels: int, expected: int) -> None:
    """WRN-16-10 has 17.1 million, WRN-16-1 has 0.18 million parameters.

    An implementation whose three projections also have biases counts 17,117,754: 160 + 320 + 640 more.
    """
    model = WideResNet(16, width, channels)

    assert parameters(model) == wide_resnet_parameters(width, channels) == expected


@pytest.mark.parametrize("width", [0.05, 0.5, 1.0, 1.3])
@pytest.mark.parametrize("depth", [10, 16])
def test_a_wide_resnet_of_any_width_gives_logits_and_gradients_everywhere(depth: int, width: float) -> None:
    """Narrow ones too: at least one channel a group, and every parameter is reached."""
    model = WideResNet(depth, width)

    logits = model(torch.randn(2, 1, 28, 28))
    logits.sum().backward()

    assert logits.shape == (2, 10)
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("depth", [4, 9, 12, 17])
def test_a_depth_that_no_wide_resnet_has_is_refused(depth: int) -> None:
    """It is 6n+4."""
    with pytest.raises(ValueError, match="6n\\+4"):
        WideResNet(depth)


def test_the_table_names_what_exists() -> None:
    """Modules that build, optimizers and schedules of their tables, options of TaskOptions."""
    known = set(TaskOptions.__dataclass_fields__)

    for name, entry in BUILT_IN.items():
        assert entry.factory.startswith("paceline.tasks.")
        assert set(entry.options) <= known, name
        assert entry.defaults.optimizer in OPTIMIZERS
        assert entry.defaults.schedule in SHAPES


def test_a_metric_called_loss_is_refused() -> None:
    """It would be added to the loss itself."""
    with pytest.raises(PacelineError, match="a metric of task t is called loss"):
        Task("t", nn.Identity, lambda m, b: Loss(b, 1), Arrays(np.zeros(1)), Arrays(np.zeros(1)), {"loss": accuracy})


def test_the_loss_of_perfect_logits_is_zero() -> None:
    """A closed form for the classification loss: log(10) for equal logits, 0 for certain ones."""
    labels = torch.arange(10)
    loss = cross_entropy()

    equal = loss(nn.Identity(), (torch.zeros(10, 10), labels))
    certain = loss(nn.Identity(), (torch.eye(10) * 1e4, labels))

    assert float(equal.sum / equal.count) == pytest.approx(math.log(10), rel=1e-6)
    assert float(certain.sum) == 0.0


def test_digits_can_be_learned() -> None:
    """A few dozen full-batch steps of plain Adam reach 90 %: data and labels belong together."""
    task = digits.build(TaskOptions())
    torch.manual_seed(0)
    model = task.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        task.loss(model, task.train_data.columns).sum.backward()
        optimizer.step()

    right, asked = accuracy(model(task.eval_data.columns[0]), task.eval_data.columns)

    assert int(right) / asked > 0.9
