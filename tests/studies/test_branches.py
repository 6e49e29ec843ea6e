"""Branches: what is trained from a run's checkpoint, with which settings, and what they come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.plan.batch_config import BatchConfig
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir
from paceline.studies.branches import BranchTest, check_parent, losses, prepare_branches
from paceline.studies.trainings import last_evaluation
from paceline.tasks.table import BUILT_IN
from paceline.train.config import TrainConfig
from paceline.train.resolve import recipe, resolve
from tests.plan.runs import training
from tests.studies.parents import parent
from tests.studies.test_sweeps import parsed


def prepared(run: Path, **settings: Any) -> BranchTest:
    """Branches of a run, on one worker."""
    config = BatchConfig(targets=[str(run)], confirm=True, **{"train_workers": "1", **settings})
    check_parent(run)
    return prepare_branches(run, config)


def configs(test: BranchTest) -> dict[int, TrainConfig]:
    """By batch, of the first seed, as `paceline train` reads their flags."""
    return {batch: parsed(training.flags) for (batch, seed), training in test.trainings.items() if seed == 1}


def peak(config: TrainConfig) -> Any:
    """What the optimizer is built with."""
    return recipe(resolve(config, BUILT_IN["digits"].defaults)).optimizer


def test_branches_take_the_same_samples_from_the_weights_of_one_checkpoint(tmp_path: Path) -> None:
    """Each with its own batch and whole steps, evaluated once, at its end; other seeds than the run's."""
    test = prepared(parent(tmp_path / "run", step=5_000, seed=0), batches="64,256", seeds=2)

    assert sorted(one.name for one in test.trainings.values()) == sorted(
        f"branch-{batch}-seed-{seed}" for batch in (64, 256) for seed in (1, 2)
    )
    assert [parsed(one.flags).seed for one in test.trainings.values()] == [1, 1, 2, 2]
    small, large = (configs(test)[batch] for batch in (64, 256))
    assert (small.global_batch, large.global_batch) == (64, 256)
    # 5,000 steps of 938 an epoch are 319,829 samples; a fifth of them over four branches is 15,991.
    assert 64 * small.steps == 256 * large.steps == test.layout.samples[64] == 15_872
    assert (small.eval_every, small.warmup, small.schedule) == ("248", "49", "constant")
    assert small.init_from == large.init_from == str(tmp_path / "run" / "checkpoints" / "step-00005000")


def test_a_branch_at_the_runs_own_batch_trains_with_what_the_run_trained_with(tmp_path: Path) -> None:
    """Rate, betas, eps and weight decay as the rule made them, not those of the base batch; and no rule any more."""
    asked = {"global_batch": 128, "base_batch": 32, "lr": 0.002, "optimizer": "adamw", "beta1": 0.95}
    run = parent(tmp_path / "run", lr_rule="adam-sde", weight_decay=0.1, **asked)
    theirs = peak(TrainConfig("digits", lr_rule="adam-sde", weight_decay=0.1, **asked))

    own = configs(prepared(run))[128]

    assert (own.lr_rule, own.base_batch) == ("none", None)
    used = peak(own)
    assert (used.lr, used.eps, used.weight_decay, used.momentum) == pytest.approx(
        (theirs.lr, theirs.eps, theirs.weight_decay, theirs.momentum)
    )
    assert used.betas == pytest.approx(theirs.betas)
    assert (used.lr, used.weight_decay, *used.betas) == pytest.approx((0.004, 0.2, 0.8, 0.996))


def test_running_statistics_keep_the_momentum_that_the_rule_gave_them(tmp_path: Path) -> None:
    """1 - (1 - 0.1)^4 at four times the base batch, where the run had one of its own."""
    run = parent(tmp_path / "run", global_batch=256, base_batch=64, lr_rule="linear", bn_momentum=0.1)

    assert configs(prepared(run))[256].bn_momentum == pytest.approx(1 - 0.9**4)


@pytest.mark.parametrize(
    ("optimizer", "factor"),
    [("sgd", (640 / 64 + 1) / (640 / 256 + 1)), ("adamw", 2.0), ("lamb", 2.0)],
)
def test_rates_grow_as_a_plan_recommends(optimizer: str, factor: float, tmp_path: Path) -> None:
    """By the progress of a step for sgd, whose noise scale is 640 here; by the root for Adam and its kin."""
    run = parent(tmp_path / "run", optimizer=optimizer, lr=0.01, noise=640.0)

    found = configs(prepared(run, batches="64,256"))

    assert found[64].lr == pytest.approx(0.01)
    assert found[256].lr == pytest.approx(0.01 * factor)


def test_a_noise_scale_of_zero_is_not_the_whole_data_set(tmp_path: Path) -> None:
    """Without noise a larger batch makes no more progress in a step, so the rate stays."""
    found = configs(prepared(parent(tmp_path / "run", noise=0.0, lr=0.1), batches="64,256"))

    assert (found[64].lr, found[256].lr) == (0.1, 0.1)


PARENTS: dict[str, dict[str, Any]] = {
    "more updates": {"keep_updates": True, "base_batch": 32, "lr_rule": "linear"},
    "a growing batch": {"grow_batch": True, "schedule": "step", "max_batch": 1024, "decay_at": "0.3,0.6"},
    "an average": {"average": "ema", "ema_decay": 0.99},
    "another average": {"average": "swa", "swa_from": 0.5},
    "a constant warm-up": {"warmup": "1ep", "warmup_shape": "constant", "base_batch": 32, "lr_rule": "linear"},
    "a warm-up from": {"warmup": "1ep", "warmup_from": 0.5},
    "a part of the data": {"train_samples": 700, "holdout": 100},
    "weights of another": {"init_from": "elsewhere", "target": "accuracy=0.99", "patience": 3},
    "all kinds": {"accumulate": 2, "nesterov": True, "clip_norm": 1.0, "label_smoothing": 0.1, "compress": "bf16"},
    "muon": {"optimizer": "muon", "weight_decay": 0.1, "schedule": "wsd", "cooldown": 0.3},
    "novograd": {"optimizer": "novograd", "lr_rule": "sqrt", "base_batch": 16, "eps": 1e-6},
    "lars": {"optimizer": "lars", "trust": 0.002, "deterministic": True},
}


@pytest.mark.parametrize("name", PARENTS)
def test_every_recipe_can_be_branched(name: str, tmp_path: Path) -> None:
    """Flags go through the parser and the checks of paceline train; what belongs to the run's length is left out."""
    run = parent(tmp_path / "run", **PARENTS[name])

    for config in configs(prepared(run, seeds=1)).values():
        assert (config.keep_updates, config.grow_batch, config.max_batch) == (False, False, None)
        assert (config.average, config.target, config.patience) == ("none", None, 1)
        assert (config.warmup_shape, config.warmup_from, config.schedule) == ("linear", None, "constant")
        kept = {k: v for k, v in PARENTS[name].items() if k in ("train_samples", "holdout", "nesterov", "trust")}
        assert {key: getattr(config, key) for key in kept} == kept


def test_batches_for_which_the_run_was_too_short_are_left_out_and_said(tmp_path: Path) -> None:
    """Of those that were not asked for; one that was is refused, with the largest that would do."""
    run = parent(tmp_path / "run", samples=1_437, step=690)

    test = prepared(run)

    assert (sorted({batch for batch, _ in test.trainings}), test.layout.left_out) == ([64, 128], (256,))
    assert "at a batch of 256 were left out" in test.warnings()[0]
    with pytest.raises(PacelineError, match="too short for a branch at a batch of 256") as refused:
        prepared(run, batches="128,256")
    assert "--batches up to 128" in refused.value.hint


@pytest.mark.parametrize(
    ("changes", "asked", "message"),
    [
        ({"step": 0}, {}, "has no complete checkpoint"),
        ({"step": 20}, {}, "too short for branches"),
        ({}, {"batches": "20000"}, "a batch of 20,000 is more than one in 4"),
        ({}, {"train_workers": "65"}, "a batch of 64 cannot be shared by 65 workers"),
        ({"samples": 200}, {}, "leaves no room"),
    ],
)
def test_what_cannot_be_branched_is_refused(
    changes: dict[str, Any], asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Before anything is trained."""
    run = parent(tmp_path / "run", **changes)

    with pytest.raises(PacelineError, match=message):
        prepared(run, **asked)


def test_a_run_whose_task_is_gone_is_refused(tmp_path: Path) -> None:
    """A task file that was moved."""
    run = training(tmp_path / "run", config={"task": "moved.py"})

    with pytest.raises(PacelineError, match=r"there is no task file moved\.py"):
        check_parent(run)


def test_the_last_loss_is_that_of_the_last_evaluation(tmp_path: Path) -> None:
    """None without one."""
    done = training(tmp_path / "a", evaluations=[(1, 0.5), (2, 0.75)])
    none = training(tmp_path / "b")

    assert last_evaluation(RunDir(done), "loss").metrics["loss"].value == pytest.approx(0.25)
    assert last_evaluation(RunDir(none), "loss") is None


def test_losses_stand_by_batch_and_one_that_diverged_is_no_number(tmp_path: Path) -> None:
    """In the record it is null."""
    test = prepared(parent(tmp_path / "run"), batches="64,128", seeds=2)
    runs = {
        one.name: RunDir(training(tmp_path / one.name, evaluations=[] if "128-seed-2" in one.name else [(9, 0.8)]))
        for one in test.trainings.values()
    }

    found = test.branches(runs)

    assert [(one.batch, one.seed, one.samples) for one in found] == [
        (batch, seed, test.layout.samples[batch]) for batch in (64, 128) for seed in (1, 2)
    ]
    assert [one.loss for one in found] == [pytest.approx(0.2)] * 3 + [None]
    by_batch = losses(found)
    assert by_batch[64] == pytest.approx([0.2, 0.2])
    assert by_batch[128][1] != by_batch[128][1]
