"""Sweeps and branches: what is trained, with which flags, and what they come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.records.rundir import read_info
from paceline.studies.batch_sweep import Sweep, branches, last_loss, sweep
from paceline.studies.train_flags import recipe_flags
from paceline.train.config import TrainConfig, from_dict, to_dict
from tests.plan.runs import training


def as_dict(flags: tuple[str, ...]) -> dict[str, str]:
    """Flags with values, by name."""
    return dict(zip(flags[::2], flags[1::2], strict=True))


def test_a_recipe_comes_back_as_the_flags_that_make_it() -> None:
    """Everything that decides the result and is not a default, but for the run's length and its target."""
    config = TrainConfig(
        "digits", lr=0.3, momentum=0.8, nesterov=True, epochs=7, target="accuracy=0.9", seed=4, keep=9, augment="flip"
    )

    flags = recipe_flags(to_dict(config), seed=None)

    assert flags == ("--lr", "0.3", "--momentum", "0.8", "--nesterov", "--augment", "flip")


def test_changes_stand_beside_or_instead_of_what_was() -> None:
    """A value replaces, None leaves out."""
    config = to_dict(TrainConfig("digits", lr=0.3, optimizer="adamw"))

    assert recipe_flags(config, lr="0.6", steps=12) == ("--lr", "0.6", "--optimizer", "adamw", "--steps", "12")
    assert recipe_flags(config, lr=None, optimizer=None) == ()


def test_a_sweep_has_every_batch_with_every_seed_seed_by_seed() -> None:
    """So that one that is cut short has all sizes; each has the target, a constant rate and its rule."""
    found = sweep(Sweep([32, 128], 2, "accuracy=0.9", "sqrt", epochs=3))

    assert [one.name for one in found] == [
        "batch-32-seed-0", "batch-128-seed-0", "batch-32-seed-1", "batch-128-seed-1",
    ]  # fmt: skip
    flags = as_dict(found[1].flags)
    assert (flags["--global-batch"], flags["--seed"], flags["--target"]) == ("128", "0", "accuracy=0.9")
    assert (flags["--schedule"], flags["--lr-rule"], flags["--epochs"]) == ("constant", "sqrt", "3")


def test_branches_take_the_same_samples_from_the_runs_weights(tmp_path: Path) -> None:
    """Each with the run's recipe, its own batch, the rate times its gain, and whole steps of as many samples."""
    path = training(
        tmp_path / "parent", micro=64, config={"task": "digits", "lr": 0.1, "momentum": 0.8, "lr_rule": "none"}
    )

    found = branches(path, [64, 256], 2, 1_000, [1.0, 3.5])

    assert [one.name for one in found] == [f"branch-{b}-seed-{s}" for b in (64, 256) for s in (1, 2)]
    small, large = as_dict(found[0].flags), as_dict(found[2].flags)
    assert (small["--steps"], large["--steps"]) == ("16", "4")
    assert (small["--lr"], large["--lr"]) == ("0.1", "0.35")
    assert large["--init-from"] == str(path.absolute())
    assert large["--momentum"] == "0.8"
    assert read_info(path).config["lr"] == 0.1


def test_the_last_loss_is_that_of_the_last_evaluation(tmp_path: Path) -> None:
    """NaN without one."""
    from paceline.records.rundir import RunDir

    done = training(tmp_path / "a", evaluations=[(1, 0.5), (2, 0.75)])
    none = training(tmp_path / "b")

    assert last_loss(RunDir(done)) == pytest.approx(0.25)
    assert last_loss(RunDir(none)) != last_loss(RunDir(none))


def test_flags_of_a_recipe_are_flags_of_paceline_train() -> None:
    """Read back, they give the same settings."""
    config = TrainConfig("digits", lr=0.3, warmup="2ep", batch_norm="ghost", clip_norm=1.0)
    flags = as_dict(recipe_flags(to_dict(config)))

    read = {name.removeprefix("--").replace("-", "_"): value for name, value in flags.items()}
    again = from_dict({"task": "digits"} | read | {"lr": 0.3, "clip_norm": 1.0})
    assert again == config
