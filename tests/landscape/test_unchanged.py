"""A measurement that goes on must look at the loss that it was begun with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.landscape.preflight import require_same_loss
from paceline.records.errors import PacelineError
from paceline.tasks.task import Arrays, Task
from tests.landscape.problems import conv_net, image_task, session


def begun(folder: Path, **settings: Any) -> None:
    """A measurement was begun in `folder`, and goes on once."""
    for _ in range(2):
        require_same_loss(session(image_task(), conv_net(), folder, measure="line,trace", **settings))


def with_labels(labels: torch.Tensor) -> Task:
    """`image_task` with other labels."""
    task = image_task()
    return dataclasses.replace(task, train_data=Arrays(task.train_data.columns[0], labels))


def test_one_other_label_is_noticed(tmp_path: Path) -> None:
    """Of 60; the message says which number moved, from what to what."""
    begun(tmp_path)
    labels = image_task().train_data.columns[1].clone()
    labels[7] = (labels[7] + 1) % 4

    with pytest.raises(PacelineError, match="another loss than when") as refused:
        require_same_loss(session(with_labels(labels), conv_net(), tmp_path, measure="line,trace"))

    assert "the loss at its weights was" in refused.value.why


def test_data_that_only_curvature_looks_at_are_noticed(tmp_path: Path) -> None:
    """Slices on the first ten samples say nothing of the eleventh."""
    begun(tmp_path, samples=10)
    labels = image_task().train_data.columns[1].clone()
    labels[10] = (labels[10] + 1) % 4

    with pytest.raises(PacelineError) as refused:
        require_same_loss(session(with_labels(labels), conv_net(), tmp_path, measure="line,trace", samples=10))

    assert "the curvature loss at its weights was" in refused.value.why


def test_another_metric_is_noticed(tmp_path: Path) -> None:
    """By its value, or because kept points do not have it."""
    begun(tmp_path)

    def error(outputs: Any, batch: Any) -> tuple[Any, int]:
        return (outputs.argmax(1) != batch[1]).sum(), len(batch[1])

    for name, was in (("accuracy", "was 0."), ("error", "is not there")):
        task = dataclasses.replace(image_task(), metrics={name: error})
        with pytest.raises(PacelineError) as refused:
            require_same_loss(session(task, conv_net(), tmp_path, measure="line,trace"))
        assert was in refused.value.why


def test_rounding_is_no_change(tmp_path: Path) -> None:
    """Another number of threads moves the last digits."""
    begun(tmp_path)

    def near(model: nn.Module, batch: Any) -> Any:
        loss = image_task().loss(model, batch)
        return dataclasses.replace(loss, sum=loss.sum * (1 + 1e-12))

    require_same_loss(session(dataclasses.replace(image_task(), loss=near), conv_net(), tmp_path, measure="line,trace"))


def test_a_loss_that_is_no_number_stays_none(tmp_path: Path) -> None:
    """Twice no number is no change; a number instead of none is one."""

    def endless(model: nn.Module, batch: Any) -> Any:
        loss = image_task().loss(model, batch)
        return dataclasses.replace(loss, sum=loss.sum * torch.inf)

    task = dataclasses.replace(image_task(), loss=endless)
    for _ in range(2):
        require_same_loss(session(task, conv_net(), tmp_path, measure="line,trace"))

    with pytest.raises(PacelineError, match="another loss"):
        require_same_loss(session(image_task(), conv_net(), tmp_path, measure="line,trace"))
