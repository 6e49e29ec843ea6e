"""Settings of `paceline plan batch`: what is a task, what is a run, and what would change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.plan.batch_config import BatchConfig, check
from paceline.records.errors import PacelineError
from tests.plan.runs import training


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside two runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        training(tmp_path / name)


def config(*targets: str, **settings: Any) -> BatchConfig:
    """With a target where a task needs one."""
    return BatchConfig(targets=list(targets), **settings)


@pytest.mark.parametrize(
    ("given", "trains"),
    [
        (config("a"), False),
        (config("a", "b", target="accuracy=0.9"), False),
        (config("a", confirm=True, batches="64,128", seeds=3, train_workers="2", data_dir="d"), True),
        (config("digits", target="accuracy=0.9", batches="16,64,256", lr_rule="linear", warmup="1ep", epochs=3), True),
    ],
)
def test_runs_are_read_and_tasks_and_branches_are_trained(given: BatchConfig, trains: bool) -> None:
    """Each with the settings that are its own."""
    check(given)

    assert given.trains == trains


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        (config("a", batches="64,128"), "--batches"),
        (config("a", seeds=3), "--seeds"),
        (config("a", train_workers="2"), "--train-workers"),
        (config("a", data_dir="d"), "--data-dir"),
        (config("a", "b", target="accuracy=0.9", lr_rule="linear"), "--lr-rule"),
        (config("a", epochs=3, warmup="1ep"), "--epochs and --warmup"),
        (config("a", confirm=True, lr_rule="linear"), "--lr-rule"),
    ],
)
def test_settings_of_trainings_that_are_not_made_are_refused(given: BatchConfig, flags: str) -> None:
    """Silence would look as if they had counted."""
    with pytest.raises(PacelineError) as refused:
        check(given)

    assert refused.value.what == f"{flags} would change nothing here"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (config("runs/typo"), "runs/typo is neither a run directory nor a task"),
        (config("digit", target="accuracy=0.9"), "digit is neither a run directory nor a task"),
        (config("no.py", target="accuracy=0.9"), r"there is no task file no\.py"),
        (config("digits", target="accuracy=0.9", batches="64,256"), "holds 2 sizes, and 3 are needed"),
        (config("digits", target="accuracy=0.9", train_workers="many"), "--train-workers many"),
        (config("a", confirm=True, train_workers="0"), "--train-workers 0"),
        (config("digits"), "need a --target"),
    ],
)
def test_what_cannot_be_right_is_named(given: BatchConfig, message: str) -> None:
    """With the flag as it was typed."""
    with pytest.raises(PacelineError, match=message):
        check(given)


def test_a_mistyped_task_is_told_the_nearest_one() -> None:
    """And the built-in ones."""
    with pytest.raises(PacelineError) as refused:
        check(config("digit", target="accuracy=0.9"))

    assert "did you mean digits?" in refused.value.hint
