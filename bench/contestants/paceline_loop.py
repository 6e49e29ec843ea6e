"""(2) `paceline train`'s own loop: `paceline.train.setup.build` builds the job, `paceline.train.loop.train` runs it.

This adapter is the only file of the benchmark that knows the trainer's insides. The loop runs to its end or to an
agreed stop, so a block is ended by such a stop at its last step: the loop's own mechanism, at its own cost. Two things
are taken out, because no other contestant does them: evaluation (it is never due) and checkpoints (not written). The
record of every step stays in.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from contestants.base import LR, MOMENTUM, WEIGHT_DECAY, Workload
from paceline.parallel.placement import Machine, RankEnv, place_rank, usable_cores
from paceline.parallel.rank_context import RankContext, StopRequest
from paceline.records.rundir import RunDir
from paceline.train.config import TrainConfig
from paceline.train.loop import train
from paceline.train.setup import build

TASK = Path(__file__).with_name("resident_task.py")
_NEVER = 10**9


class StopAfter(StopRequest):
    """Asks the loop to stop at the last step of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def wishes(self) -> tuple[float, float]:
        """Called once a step by the loop."""
        self.left -= 1
        self.interrupt = self.left <= 0
        return super().wishes()


class KeepNothing:
    """Stands in for the writer of checkpoints."""

    def save(self, *args: Any) -> None:
        """Does nothing."""

    def prune(self, step: int) -> None:
        """Does nothing."""


class PacelineLoop:
    """Ours."""

    synchronised = True

    def setup(self, work: Workload) -> None:
        """See `Contestant`."""
        env = RankEnv.read(os.environ)
        if env is None or (env.rank, env.world) != (work.rank, work.world):
            raise RuntimeError("the environment does not describe this rank as torchrun would")
        context = RankContext(env, place_rank(Machine(0, usable_cores()), env), torch.device("cpu"), ["bench"])
        self.scratch = Path(tempfile.mkdtemp(prefix="paceline-bench-"))
        self.stop = StopAfter()
        config = TrainConfig(
            task=str(TASK),
            global_batch=work.batch * work.world,
            epochs=_NEVER,
            lr=LR,
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
            schedule="constant",
            warmup="0",
            seed=work.seed,
            precision="bf16" if work.bf16 else "fp32",
            data_dir=str(work.root),
            eval_every=str(_NEVER),
            checkpoint_every=str(_NEVER),
        )
        self.job = build(config, context, RunDir(self.scratch), self.stop)
        self.job.keeper = KeepNothing()

    def ready(self) -> None:
        """Nothing to bring back."""

    def run(self, steps: int) -> None:
        """See `Contestant`."""
        before = self.job.progress.step
        self.stop.left = steps
        train(self.job)
        done = self.job.progress.step - before
        if done != steps:
            raise RuntimeError(f"the loop did {done} steps where {steps} were asked for")

    def module(self) -> nn.Module:
        """See `Contestant`."""
        return self.job.replica.model

    def close(self) -> None:
        """Removes its run directory."""
        self.job.recorder.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
