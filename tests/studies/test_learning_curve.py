"""The trainings of a learning curve: every size trained equally long, and what came of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.plan.data_config import DataConfig
from paceline.records.errors import PacelineError
from paceline.studies import trainings
from paceline.studies.learning_curve import LearningCurveStudy, asked_of_trainings, prepare
from paceline.studies.trainings import carry_out
from paceline.tasks.description import describe
from paceline.tasks.holdout import hold_out
from paceline.tasks.task_loader import load_task
from tests.studies.stand_in import error_of

TASK_FILE = """
import torch
from paceline.tasks.task import Arrays, Defaults, Loss, Task

def task():
    data = Arrays(torch.zeros(1000, 2), torch.zeros(1000, dtype=torch.int64))
    count = lambda outputs, batch: (0.0, len(batch[1]))
    return Task("made", lambda: torch.nn.Linear(2, 2), lambda model, batch: Loss(model(batch[0]).sum(), 1), data, data,
                metrics={"accuracy": count, "f1": count, "word_error": count},
                defaults=Defaults(global_batch=100, epochs=4, warmup="0.5ep"))
"""


@pytest.fixture
def made(tmp_path: Path) -> str:
    """A task of 1,000 samples, 10 steps an epoch, 4 epochs, half an epoch of warm-up."""
    path = tmp_path / "made.py"
    path.write_text(TASK_FILE)
    return str(path)


def prepared(config: DataConfig) -> LearningCurveStudy:
    """With what another process would say of the task."""
    task = load_task(config.task, asked_of_trainings(config).task_options)
    return prepare(config, describe(hold_out(task, config.holdout)))


def flags_of(training: Any) -> dict[str, str]:
    """`--name value` pairs."""
    return dict(zip(training.flags[::2], training.flags[1::2], strict=True))


def test_every_size_takes_the_steps_and_the_warm_up_of_the_largest(made: str) -> None:
    """4 epochs of 10 steps are 40, half an epoch of warm-up 5, for 125 samples as for 1,000."""
    study = prepared(DataConfig(task=made, fractions="1/8,1/4,1/2,1", seeds=2))

    each = [flags_of(training) for training in study.trainings.values()]

    assert [flags["--train-samples"] for flags in each] == ["125", "250", "500", "1000"] * 2
    assert [flags["--seed"] for flags in each] == ["0"] * 4 + ["1"] * 4
    assert {(flags["--steps"], flags["--warmup"], flags["--global-batch"]) for flags in each} == {("40", "5", "100")}
    assert not any("--epochs" in flags for flags in each)


def test_a_largest_size_below_the_whole_sets_the_steps(made: str) -> None:
    """Half the data, after a holdout of 200: 400 samples, 4 steps an epoch."""
    study = prepared(DataConfig(task=made, fractions="1/16,1/8,1/4,1/2", holdout=200, epochs=3))

    flags = flags_of(list(study.trainings.values())[-1])

    assert sorted({size for size, _ in study.trainings}) == [50, 100, 200, 400]
    assert (flags["--steps"], flags["--warmup"], flags["--holdout"]) == ("12", "2", "200")
    assert study.epochs == 3


def test_with_the_same_epochs_steps_and_warm_up_follow_the_size(made: str) -> None:
    """They are left to the training, in epochs."""
    study = prepared(DataConfig(task=made, fractions="1/8,1/4,1/2,1", length="epochs"))

    each = [flags_of(training) for training in study.trainings.values()]

    assert {flags["--epochs"] for flags in each} == {"4"}
    assert not any("--steps" in flags or "--warmup" in flags for flags in each)
    assert study.length == "epochs"


def test_flags_of_the_training_reach_every_training(made: str) -> None:
    """And a warm-up among them is that of all sizes, in steps."""
    config = DataConfig(task=made, lr=0.3, global_batch=50, train_flags="--optimizer adamw --warmup 1ep --clip-norm 2")

    flags = flags_of(next(iter(prepared(config).trainings.values())))

    assert (flags["--lr"], flags["--global-batch"], flags["--optimizer"], flags["--clip-norm"]) == (
        "0.3", "50", "adamw", "2.0",
    )  # fmt: skip
    assert (flags["--steps"], flags["--warmup"]) == ("80", "20")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "recall"}, "recall is not measured by the task made"),
        ({"metric": "f1"}, "f1 has no learning curve"),
        ({"train_flags": "--seed 4"}, "cannot hold --seed"),
        ({"train_flags": "--steps 4"}, "cannot hold --steps"),
        ({"train_flags": "--optimizer sgdx"}, "--optimizer sgdx is unknown"),
        ({"train_flags": "--beta1 0.5"}, "does not take --beta1"),
        ({"train_flags": "--width 2"}, "does not take --width"),
        ({"fractions": "0.0001,0.0002,0.0003,1"}, "are 1 sizes"),
        ({"holdout": 1000}, "--holdout 1,000 leaves nothing"),
    ],
)
def test_what_no_training_could_do_is_refused_before_any(made: str, given: dict[str, Any], message: str) -> None:
    """In the words of the training where they are its own."""
    with pytest.raises(PacelineError) as refused:
        prepared(DataConfig(**({"task": made} | given)))

    assert message in str(refused.value)
    assert refused.value.hint


def test_the_metric_is_accuracy_where_there_is_one(made: str) -> None:
    """Else the loss; a metric that counts down is taken when it is asked for."""
    assert prepared(DataConfig(task=made)).metric == "accuracy"
    assert prepared(DataConfig(task=made, target="loss=1")).metric == "loss"
    assert prepared(DataConfig(task=made, metric="word_error")).metric == "word_error"
    assert prepared(DataConfig(task="linear")).metric == "loss"


@pytest.mark.parametrize(("metric", "factor"), [("accuracy", 1), ("loss", 2)])
def test_points_are_the_errors_of_the_last_evaluation(
    metric: str, factor: int, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One minus an accuracy, or a loss as it is; with steps, by size and seed; null for one that diverged."""
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "calls"))
    monkeypatch.setattr(trainings, "PROGRAM", (sys.executable, str(Path(__file__).with_name("stand_in.py"))))
    study = prepared(DataConfig(task=made, fractions="1/8,1/4,1/2,1", seeds=1, metric=metric))
    diverging = prepared(DataConfig(task=made, fractions="1/8,1/4,1/2,1", seeds=1, metric=metric, lr=99))

    runs = carry_out(study.trainings.values(), tmp_path / "a", made, tell=lambda done, total, what: None)
    lost = carry_out(list(diverging.trainings.values())[:1], tmp_path / "b", made, tell=lambda done, total, what: None)

    found = study.points(runs)
    assert [(point.samples, point.seed, point.steps) for point in found] == [(n, 0, 40) for n in (125, 250, 500, 1000)]
    assert [point.error for point in found] == [pytest.approx(factor * error_of(n, 0)) for n in (125, 250, 500, 1000)]
    assert diverging.points({**runs, **lost})[0].error is None


def test_the_cost_is_said_in_a_line(made: str) -> None:
    """Sizes, seeds and how long each is trained."""
    equal = prepared(DataConfig(task=made, fractions="1/8,1/4,1/2,1", seeds=3))
    short = prepared(DataConfig(task=made, fractions="1/8,1/4,1/2,1", seeds=1, length="epochs"))

    sizes = "4 sizes from 125 to 1,000 samples, with"
    assert equal.cost == f"{sizes} 3 seeds: trainings of 40 steps, 100 samples a step"
    assert short.cost == f"{sizes} 1 seed: trainings of 4 epochs, 100 samples a step"
