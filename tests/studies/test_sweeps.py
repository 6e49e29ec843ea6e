"""Sweeps: what is trained, with which flags, and what is refused before anything is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import typer

from paceline.cli.options import command_from
from paceline.plan.batch_config import BatchConfig
from paceline.records.errors import PacelineError
from paceline.studies.batch_sweep import check_sweep, prepare_sweep, require_workers, sweep
from paceline.studies.train_flags import recipe_flags
from paceline.studies.trainings import Grid
from paceline.tasks.description import describe
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task_loader import load_task
from paceline.train.checks import check
from paceline.train.config import TrainConfig
from paceline.train.resolve import recipe, resolve


def as_dict(flags: tuple[str, ...]) -> dict[str, str]:
    """Flags with values, by name."""
    return dict(zip(flags[::2], flags[1::2], strict=True))


def parsed(flags: tuple[str, ...]) -> TrainConfig:
    """As `paceline train digits` reads and checks them."""
    found: list[dict[str, Any]] = []
    app = typer.Typer()
    app.command()(command_from(TrainConfig, found.append, ""))
    app(["digits", *flags], standalone_mode=False)
    config = TrainConfig(**found[0])
    check(config)
    recipe(resolve(config, BUILT_IN["digits"].defaults))
    return config


def asked(**settings: Any) -> BatchConfig:
    """A plan of digits."""
    return BatchConfig(targets=["digits"], **{"target": "accuracy=0.9", "train_workers": "1", **settings})


def _prepared(config: BatchConfig) -> Grid:
    """With what another process would say of digits."""
    return prepare_sweep(config, describe(load_task("digits", TaskOptions())))


def test_a_recipe_comes_back_as_the_flags_that_make_it() -> None:
    """Everything that decides the result and is not a default, but for the run's length and its target."""
    config = TrainConfig(
        "digits", lr=0.3, momentum=0.8, nesterov=True, epochs=7, target="accuracy=0.9", seed=4, keep=9, augment="flip",
        train_samples=700,
    )  # fmt: skip

    flags = recipe_flags(dataclasses.asdict(config), seed=None)

    assert flags == (
        "--lr", "0.3", "--momentum", "0.8", "--nesterov", "--augment", "flip", "--train-samples", "700",
    )  # fmt: skip


def test_changes_stand_beside_or_instead_of_what_was() -> None:
    """A value replaces, None leaves out."""
    config = dataclasses.asdict(TrainConfig("digits", lr=0.3, optimizer="adamw"))

    assert recipe_flags(config, lr="0.6", steps=12) == ("--lr", "0.6", "--optimizer", "adamw", "--steps", "12")
    assert recipe_flags(config, lr=None, optimizer=None) == ()


def test_flags_of_a_recipe_are_flags_of_paceline_train() -> None:
    """Read back, they give the same settings."""
    config = TrainConfig("digits", lr=0.3, warmup="2ep", batch_norm="ghost", clip_norm=1.0)
    flags = as_dict(recipe_flags(dataclasses.asdict(config)))

    read = {name.removeprefix("--").replace("-", "_"): value for name, value in flags.items()}
    again = TrainConfig.from_dict({"task": "digits"} | read | {"lr": 0.3, "clip_norm": 1.0})
    assert again == config


def test_a_sweep_has_every_batch_with_every_seed_seed_by_seed() -> None:
    """So that one that is cut short has all sizes; each has the target, a constant rate and its rule."""
    found = list(sweep(asked(seeds=2, epochs=3), [32, 128]).values())

    assert [one.name for one in found] == [
        "batch-32-seed-0", "batch-128-seed-0", "batch-32-seed-1", "batch-128-seed-1",
    ]  # fmt: skip
    config = parsed(found[1].flags)
    assert (config.global_batch, config.seed, config.target) == (128, 0, "accuracy=0.9")
    assert (config.schedule, config.lr_rule, config.epochs) == ("constant", "sqrt", 3)


@pytest.mark.parametrize("rule", ["none", "linear", "sqrt", "legw"])
def test_every_training_of_a_sweep_is_one_that_paceline_train_takes(rule: str) -> None:
    """Its flags go through the parser and the checks of the training, with the rule's rate at each batch."""
    found = _prepared(asked(lr_rule=rule, warmup="0.5ep", epochs=4, seeds=1)).values()

    assert [one.name for one in found] == [f"batch-{batch}-seed-0" for batch in (16, 64, 256)]
    rates = [recipe(resolve(parsed(one.flags), BUILT_IN["digits"].defaults)).optimizer.lr for one in found]
    factor = {"none": 1.0, "linear": 4.0}.get(rule, 2.0)
    assert rates == pytest.approx([0.05 / factor, 0.05, 0.05 * factor])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr_rule": "square"}, "--lr-rule square is unknown"),
        ({"warmup": "long"}, "--warmup long is no length"),
    ],
)
def test_wrong_flags_are_refused_before_the_task_is_loaded(settings: dict[str, Any], message: str) -> None:
    """In the words of the training."""
    with pytest.raises(PacelineError, match=message):
        check_sweep(asked(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "f1=0.9"}, "f1 is not measured by the task digits"),
        ({"lr_rule": "adam-sde"}, "at a batch of 16: --lr-rule adam-sde does not hold for sgd"),
        ({"batches": "64,256,1024"}, "a batch of 1,024 is more than one in 4 of the 1,437 training samples"),
        ({"batches": "2,64,256", "train_workers": "3"}, "a batch of 2 cannot be shared by 3 workers"),
    ],
)
def test_what_only_the_task_tells_is_refused_before_anything_is_trained(settings: dict[str, Any], message: str) -> None:
    """Its metrics, its optimizer, its samples."""
    with pytest.raises(PacelineError, match=message):
        _prepared(asked(**settings))


def test_workers_are_counted_as_the_trainings_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """auto is one a CUDA device, else one a core; more than there are devices are refused, all under their own flag."""
    monkeypatch.setattr("paceline.studies.batch_sweep.cuda_devices", lambda: 4)

    require_workers(4, "auto")
    for smallest, workers, message in (
        (3, "auto", "a batch of 3 cannot be shared by 4 workers"),
        (64, "5", "--train-workers 5 is more than this machine's 4 CUDA"),
        (64, "many", "--train-workers many"),
    ):
        with pytest.raises(PacelineError, match=message):
            require_workers(smallest, workers)
