"""Targets that can never be reached are refused before anything is trained, with the range."""

from __future__ import annotations

import pytest

from paceline.cli.train_request import settle_request
from paceline.plan import batch_config, data_config
from paceline.records.errors import PacelineError
from paceline.records.target import Target
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.targets import check_target
from paceline.tasks.task_loader import load_task


@pytest.mark.parametrize(
    ("target", "words", "hint"),
    [
        ("accuracy=90", "can never be reached", "did you mean accuracy=0.9? legal: 0 < value <= 1"),
        ("accuracy=1.5", "can never be reached", "legal: 0 < value <= 1"),
        ("accuracy=-0.5", "is reached by every model", "legal: 0 < value <= 1"),
        ("accuracy=0", "is reached by every model", "legal: 0 < value <= 1"),
        ("loss=-1", "can never be reached", "legal: 0 < value"),
        ("loss=0", "can never be reached", "legal: 0 < value"),
        ("acuracy=0.9", "is not measured by the task digits", "it measures: loss, accuracy"),
    ],
)
def test_a_target_out_of_reach_is_refused_by_every_verb_that_trains(target: str, words: str, hint: str) -> None:
    """Before torch is loaded."""
    with pytest.raises(PacelineError, match=words) as train:
        settle_request({"task": "digits", "target": target})
    with pytest.raises(PacelineError, match=words):
        batch_config.check(batch_config.BatchConfig(targets=["digits"], target=target))
    with pytest.raises(PacelineError):
        data_config.check(data_config.DataConfig(task="digits", target=target))

    assert train.value.hint == hint


@pytest.mark.parametrize("metric", ["accuracy", "loss", "score"])
def test_of_a_users_task_nothing_is_known_before_it_is_run(metric: str) -> None:
    """Its accuracy may be in percent, its loss below zero."""
    check_target("my_task.py", Target(metric=metric, value=-90.0))


@pytest.mark.parametrize("name", ["linear", "digits", "shapes"])
def test_the_table_has_the_metrics_that_tasks_measure(name: str) -> None:
    """The table is read where torch is not loaded."""
    assert tuple(load_task(name, TaskOptions()).metrics) == BUILT_IN[name].metrics


@pytest.mark.parametrize("workers", ["65", "500"])
def test_workers_that_the_batch_of_a_built_in_task_cannot_be_shared_by_are_refused(workers: str) -> None:
    """Its default batch, before anything is loaded."""
    with pytest.raises(PacelineError, match="a global batch of 64 cannot be shared by"):
        settle_request({"task": "digits", "workers": workers})
