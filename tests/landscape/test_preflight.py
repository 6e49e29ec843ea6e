"""Refusals before anything is written, the estimated cost, and a resumed measurement whose loss has changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.checkpoint.manifest import directory_name, read_manifest
from paceline.checkpoint.state import MODEL_FILE
from paceline.landscape.cost import measure_pace
from paceline.landscape.preflight import make_losses, preflight, require_same_loss
from paceline.records.errors import PacelineError
from paceline.tasks.task import Arrays, Task
from tests.landscape.problems import conv_net, image_task, session
from tests.landscape.test_paths import PLACES, apart, checkpoint, path_session


def test_too_few_samples_for_a_batch_norm_are_refused_for_slices_too(tmp_path: Path) -> None:
    """Whatever curvature looks at, and before there is anything to clean up."""
    made = session(image_task(), conv_net(), tmp_path / "parts", samples=1, measure="line,trace")

    with pytest.raises(PacelineError, match="chunks of at least 2 samples"):
        make_losses(made)

    assert not (tmp_path / "parts").exists()


def test_the_checkpoints_of_a_path_are_counted(tmp_path: Path) -> None:
    """Also where it is only asked for by the plane of the surface; none otherwise."""
    path = path_session(tmp_path / "a", PLACES, plane="pca", measure="surface")
    line = path_session(tmp_path / "b", PLACES, directions="raw", measure="line")

    assert (preflight(path)[0], preflight(line)[0]) == (4, 0)


def test_the_other_runs_weights_are_known_by_the_digest_in_its_manifest(tmp_path: Path) -> None:
    """The same that it has as the run that is looked at, in every precision."""
    one, other = apart()
    checkpoint(tmp_path / "one", 1, one)
    checkpoint(tmp_path / "two", 2, other)
    settings = {"target": str(tmp_path / "one"), "other": str(tmp_path / "two")}

    _, other_weights = preflight(session(image_task(), one, tmp_path / "parts", **settings))

    manifest = read_manifest(tmp_path / "two" / "checkpoints" / directory_name(2))
    assert other_weights == manifest.files[MODEL_FILE].sha256


def test_the_cost_can_be_measured_wherever_slices_can(tmp_path: Path) -> None:
    """Three samples cut into twos leave one that batch norm could not take."""
    made = session(image_task(3), conv_net(), tmp_path, samples=2, curvature_samples=2, chunk=2, measure="line,trace")

    pace = measure_pace(made)

    assert pace.value > 0
    assert pace.product > 0


# ---- the loss of a resumed measurement


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
