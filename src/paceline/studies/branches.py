"""Short trainings from one checkpoint at several batches, with the run's own recipe: made, checked, and read.

**A branch differs from the run in its batch, its rate and its length, and in nothing else that decides a loss.** Rates
are those that the run really trained with (what its scaling rule made of them), times what a plan recommends for the
batch. What belongs to the run's length is left out: its schedule (the rate stays at the peak after a linear warm-up
over a fifth of the branch), a batch that grows, more updates, and averages of weights, which over so few steps are the
weights of the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.plan.advise import growth_of_rate
from paceline.plan.batch_config import BatchConfig
from paceline.plan.batch_result import noise_windows
from paceline.plan.batch_sizes import sizes_of_branches
from paceline.plan.branch import LEAST_STEPS, Layout, lay_out
from paceline.plan.rows import train_info
from paceline.plan.steps import at_most_data
from paceline.records.errors import PacelineError
from paceline.records.plan_results import Branch, finite
from paceline.records.rundir import RunDir
from paceline.records.schema import RunInfo
from paceline.settings.flag_text import as_flags
from paceline.stats.goodput import gain
from paceline.studies.batch_sweep import check_training, require_workers
from paceline.studies.train_flags import recipe, used
from paceline.studies.trainings import Grid, grid, last_evaluation
from paceline.tasks.names import check_task_name
from paceline.tasks.table import Defaults
from paceline.train.config import TrainConfig

_OF_ITS_LENGTH = (
    "keep_updates", "grow_batch", "max_batch", "average", "ema_decay", "swa_from", "warmup_shape", "warmup_from",
    "cooldown", "decay_at", "decay_factor", "seed",
)  # fmt: skip
"""Settings of the run that a branch does not have."""


@dataclass(frozen=True)
class BranchTest:
    """What is trained.

    Attributes:
        task: of the run.
        step: of the checkpoint.
        layout: steps and samples, by batch.
        trainings: by batch and seed: other orders of the samples.
    """

    task: str
    step: int
    layout: Layout
    trainings: Grid

    def branches(self, runs: Mapping[str, RunDir]) -> list[Branch]:
        """What came of them, by batch, then by seed.

        Args:
            runs: by the names of `trainings`, all ended.
        """
        found = []
        for (batch, seed), training in sorted(self.trainings.items()):
            run = runs[training.name]
            last = last_evaluation(run, "loss")
            loss = finite(last.metrics["loss"].value) if last is not None else None  # it may have diverged before
            samples = self.layout.samples[batch]
            found.append(Branch(run=str(run.path), batch=batch, seed=seed, samples=samples, loss=loss))
        return found

    def warnings(self) -> list[str]:
        """What people should know of how they were made."""
        if not self.layout.left_out:
            return []
        sizes = ", ".join(f"{batch:,}" for batch in self.layout.left_out)
        return [
            f"branches at a batch of {sizes} were left out: all branches take a fifth of the {self.step:,} steps that "
            f"the run had done, and one at this batch would have had less than {LEAST_STEPS} steps"
        ]


def losses(branches: Sequence[Branch]) -> dict[int, list[float]]:
    """By batch, one a seed; NaN where a branch diverged."""
    found: dict[int, list[float]] = {}
    for branch in branches:
        found.setdefault(branch.batch, []).append(math.nan if branch.loss is None else branch.loss)
    return found


def check_parent(run: Path) -> RunInfo:
    """Refuse, without torch and before a data set is fetched, a run that cannot be branched.

    Raises:
        PacelineError: it is no training, has settings that this version does not know, or its task is not there.
    """
    info = train_info(run)
    check_task_name(TrainConfig.from_dict(info.config).task)
    return info


def prepare_branches(run: Path, config: BatchConfig) -> BranchTest:
    """Settle what is trained; nothing is started.

    Args:
        run: checked by `check_parent`; with recorded noise.
        config: with --confirm.

    Raises:
        PacelineError: the run has no checkpoint; there is no room for branches between its batch and its training set;
            or it is too short for them.
    """
    from paceline.checkpoint.find import find_checkpoint

    info = train_info(run)
    assert info.batch is not None
    assert info.task is not None
    base, data = info.batch.global_batch, info.task.train_samples
    sizes = sizes_of_branches(base, data, config.batch_sizes)
    step, checkpoint = find_checkpoint(run, None)
    layout = lay_out(step / info.task.steps_per_epoch * data, data, sizes, config.seeds)
    if layout.left_out and config.batches is not None:
        raise PacelineError(
            f"the run is too short for a branch at a batch of {layout.left_out[-1]:,}",
            why=f"all branches take a fifth of the {step:,} steps that it had done at its checkpoint, and a branch at "
            f"least {LEAST_STEPS} steps",
            hint=f"--batches up to {max(layout.steps):,}, fewer --seeds, or a run that has come further",
        )
    require_workers(sizes[0], config.train_workers)
    settings = settings_of_branches(info, checkpoint, layout, at_most_data(noise_windows(run))[-1].found.value)
    for batch, each in settings.items():
        check_training(str(info.config["task"]), batch, each, Defaults())
    trainings = grid(
        "branch",
        settings,
        range(1, config.seeds + 1),
        lambda batch, seed: as_flags(TrainConfig, {**settings[batch], "seed": seed}),
    )
    return BranchTest(str(info.config["task"]), step, layout, trainings)


def settings_of_branches(info: RunInfo, checkpoint: Path, layout: Layout, noise: float) -> dict[int, dict[str, Any]]:
    """Of each batch: the run's recipe from its checkpoint, with a rate for the batch.

    Args:
        info: of the run.
        checkpoint: whose weights branches begin with.
        layout: how long they are.
        noise: the noise scale at that moment, in samples, 0 or more.
    """
    assert info.batch is not None
    base, own = info.batch.global_batch, used(info)
    dropped = dict.fromkeys(_OF_ITS_LENGTH)
    found = {}
    for batch, steps in layout.steps.items():
        optimizer = str(info.config.get("optimizer") or "sgd")
        factor = growth_of_rate(optimizer, gain(noise, base, batch), batch / base)
        changes = {
            **own,
            **dropped,
            "lr": float(own["lr"]) * factor,
            "global_batch": batch,
            "schedule": "constant",
            "warmup": str(steps // 5),
            "init_from": str(checkpoint.absolute()),
            "steps": steps,
            "eval_every": str(steps),
            "checkpoint_every": "100000ep",
        }
        found[batch] = recipe(info.config, **changes)
    return found
