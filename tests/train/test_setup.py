"""What is settled before the first step: refusals that would come hours later, notes, and what the record holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import Note
from paceline.tasks.task import Task
from tests.distributed.jobs import small_task, trained
from tests.train.ranks import Rows, told

FLAGS: dict[str, Any] = {"task": "small", "global_batch": 30, "epochs": 1, "lr": 0.01, "schedule": "constant"}
FLAGS |= {"precision": "fp64", "optimizer": "sgd"}


def dense(samples: int) -> Task:
    """With a batch norm of one value a sample and channel."""
    return small_task(samples, norm=True)


def images(samples: int) -> Task:
    """With a batch norm of several values a sample and channel."""

    def model() -> nn.Module:
        layers = [nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(12, 5)]
        return nn.Sequential(*layers)

    return replace(small_task(samples), model=model)


def plain(samples: int) -> Task:
    """Without a batch norm."""
    return small_task(samples)


def rows(samples: int) -> Task:
    """Of a map-style data set."""
    task = small_task(samples)
    return replace(task, train_data=Rows(task.train_data.columns), eval_data=Rows(task.eval_data.columns))


TASKS: dict[str, Callable[[int], Task]] = {"dense": dense, "images": images, "plain": plain, "rows": rows}


def outcome(base: str, task: str, samples: int, more: dict[str, Any]) -> Any:
    """How a training of one of the tasks ends, or what it says; runs on a rank."""
    flags = FLAGS | more
    flags = {name: value for name, value in flags.items() if value is not None}
    try:
        return trained(flags, TASKS[task](samples), base)["outcome"]
    except PacelineError as error:
        return told(error)


@pytest.mark.parametrize(
    ("world", "samples", "more"),
    [
        (1, 31, {"batch_norm": "local"}),
        (1, 61, {"batch_norm": "ghost", "ghost_size": 4}),
        (1, 31, {"batch_norm": "sync"}),
        (2, 31, {"batch_norm": "sync"}),
        (2, 33, {"batch_norm": "local"}),
        (1, 30, {"batch_norm": "local", "global_batch": 10, "accumulate": 9}),
    ],
)
def test_a_sample_that_a_batch_norm_would_meet_alone_is_found_before_the_start(
    world: int, samples: int, more: dict[str, Any], tmp_path: Path
) -> None:
    """At the end of an epoch, or as a worker's part of it; in one message on all ranks, with nothing written."""
    found = run_ranks(outcome, world, str(tmp_path / "run"), "dense", samples, more)

    for what, why, code in found:
        assert what == "batch norm cannot normalise a single sample: its variance is 0"
        assert f"{samples} samples in batches of {more.get('global_batch', 30)}" in why
        assert code == 2
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    ("world", "task", "samples", "more"),
    [
        (1, "dense", 31, {"steps": 1, "epochs": None}),
        (2, "dense", 32, {"batch_norm": "sync"}),
        (2, "dense", 31, {"batch_norm": "local", "global_batch": 31}),
        (1, "images", 31, {}),
        (2, "images", 31, {"batch_norm": "sync"}),
        (2, "plain", 31, {}),
    ],
)
def test_a_single_sample_is_no_matter_where_no_layer_minds_it(
    world: int, task: str, samples: int, more: dict[str, Any], tmp_path: Path
) -> None:
    """A run that ends before it, samples of many values, statistics over all workers, and models without batch norm."""
    assert run_ranks(outcome, world, str(tmp_path / "run"), task, samples, more) == ["finished"] * world


def notes(base: Path) -> list[str]:
    """Of rank 0."""
    return [event.message for event in EventStream(RunDir(base).events(0)) if isinstance(event, Note)]


def test_a_batch_beyond_the_training_set_is_the_set_and_that_is_said(tmp_path: Path) -> None:
    """The record has what was taken, and the rule what it made of that."""
    more = {"global_batch": 999, "base_batch": 10, "lr_rule": "linear", "epochs": 3}

    run_ranks(outcome, 2, str(tmp_path), "plain", 40, more)

    info = read_info(tmp_path)
    assert (info.batch.global_batch, info.task.total_steps) == (40, 3)
    assert info.facts["rule"]["lr"] == pytest.approx(0.04)
    assert any("--global-batch 999 is more than the 40 training samples" in note for note in notes(tmp_path))


def test_the_record_says_what_the_rule_made_of_running_momenta(tmp_path: Path) -> None:
    """Of a batch four times the base batch in two micro-batches: twice as far a step of the statistics."""
    more = {"global_batch": 40, "base_batch": 10, "accumulate": 2, "lr_rule": "linear"}

    run_ranks(outcome, 1, str(tmp_path), "dense", 80, more)

    rule = read_info(tmp_path).facts["rule"]
    assert (rule["batch_times"], rule["micro_batch_times"]) == (4, 2)
    assert rule["bn_momenta"] == pytest.approx([1 - 0.9**2])


def test_held_out_samples_of_a_data_set_may_be_augmented_and_that_is_said(tmp_path: Path) -> None:
    """Its __getitem__ makes them for training; arrays are evaluated as they are."""
    said = {}
    for task in ("rows", "plain"):
        run_ranks(outcome, 1, str(tmp_path / task), task, 40, {"holdout": 7, "loader_workers": 0})
        said[task] = sum("--holdout evaluates on" in note for note in notes(tmp_path / task))

    assert said == {"rows": 1, "plain": 0}


def test_a_momentum_of_batch_norms_that_are_not_there_is_refused(tmp_path: Path) -> None:
    """It would change nothing."""
    ((what, _, code),) = run_ranks(outcome, 1, str(tmp_path / "run"), "plain", 40, {"bn_momentum": 0.5})

    assert what == "--bn-momentum has nothing to change: the model has no batch norm"
    assert code == 2
