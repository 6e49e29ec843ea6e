"""The example of a user's own task file."""

import importlib.util
from pathlib import Path

import pytest
import torch

from paceline.tasks.table import TaskOptions
from paceline.tasks.task import Arrays, Task
from paceline.tasks.task_loader import load_task

FILE = Path(__file__).resolve().parents[2] / "examples" / "my_task.py"


@pytest.fixture
def task():
    """The task as `paceline train` loads it."""
    return load_task(str(FILE), TaskOptions())


def column(data: Arrays, index):
    """Column 0: points, column 1: arms."""
    return data.columns[index]


def test_the_file_is_a_task_that_paceline_accepts(task):
    """`task()` returns a Task whose two sets have points and arms of equal length, and do not share a point."""
    assert isinstance(task, Task)
    assert (len(task.train_data), len(task.eval_data)) == (4000, 1000)
    train, held_out = (set(map(tuple, column(data, 0).tolist())) for data in (task.train_data, task.eval_data))
    assert not train & held_out
    assert set(column(task.eval_data, 1).tolist()) == {0, 1, 2}


def test_the_loss_is_a_sum_over_the_samples_it_counts(task):
    """Sum / count is torch's own mean cross entropy, computed in float64 from log-probabilities written out."""
    torch.manual_seed(0)
    model = task.model().double()
    batch = (column(task.train_data, 0)[:37].double(), column(task.train_data, 1)[:37])

    loss = task.loss(model, batch)

    logits = model(batch[0])
    expected = sum(torch.logsumexp(row, 0) - row[arm] for row, arm in zip(logits, batch[1], strict=True))
    assert loss.count == 37
    torch.testing.assert_close(loss.sum, expected)


def test_the_model_learns_the_spirals_with_a_plain_loop(task):
    """The task can be learnt without paceline: plain SGD on it passes 0.9, far above the third that guessing gives."""
    torch.manual_seed(0)
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=task.defaults.lr, momentum=0.9)
    points, arms = task.train_data.columns

    for _ in range(12):
        for chosen in torch.randperm(len(points)).split(task.defaults.global_batch):
            loss = task.loss(model, (points[chosen], arms[chosen]))
            optimizer.zero_grad()
            (loss.sum / loss.count).backward()
            optimizer.step()
    outputs = model(column(task.eval_data, 0))
    correct, counted = task.metrics["accuracy"](outputs, task.eval_data.columns)

    assert counted == 1000
    assert float(correct) / counted > 0.9


def test_the_data_are_the_same_in_every_process():
    """Two imports of the file make the same points, so that all ranks train on one data set."""
    first, second = (_import().task().train_data.columns for _ in range(2))

    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _import():
    spec = importlib.util.spec_from_file_location("my_task_under_test", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
