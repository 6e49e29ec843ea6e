"""A process of `paceline verify --task`: a rank that trains with our trainer, or the oracle that trains alone.

Both write what a parity run of a script writes (`records/parity.py`), so that the same comparison judges them. The
oracle shares no code with the trainer but the feed, the schedule and the optimizer's own step.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.observe.parity.script_rank import ScriptJob, enter
from paceline.observe.parity.snapshots import write_tensors
from paceline.parallel import rank_context
from paceline.parallel.partition import batch_span, epoch_order
from paceline.parallel.placement import RankEnv
from paceline.records.parity import PARITY_VARIABLE, ParityEnd, ParityStep, ParityTask, rank_folder, step_folder
from paceline.records.rundir import RunDir
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Task
from paceline.train import setup
from paceline.train.config import TrainConfig
from paceline.train.feed import make_feed
from paceline.train.loop import train
from paceline.train.model import converted, seed_everything
from paceline.train.optim.build import build_optimizer
from paceline.train.resolve import TrainingPlan, plan_training
from paceline.train.task_validation import load_part
from paceline.verify.oracle import Problem, train_alone

_NEVER = "1000000000"
_ROUNDING = 1e-15
"""Relative change of the initial weights by which two oracles differ, to measure how rounding errors grow."""


class _EnoughSteps(BaseException):
    """The steps that are compared are done."""


def run(given: bytes) -> int:
    """Train, and keep the state after each step. Returns the exit code."""
    job = msgspec.json.decode(given, type=ScriptJob)
    task = msgspec.json.decode(Path(os.environ[PARITY_VARIABLE]).read_bytes(), type=ParityTask)
    enter(job, task)
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    trace, error = _Trace(task, rank), ""
    try:
        (_train_alone if task.source else _train_as_rank)(job, task, trace)
    except BaseException as failure:  # noqa: BLE001
        error = f"{traceback.format_exc()}\n{rank_context.last_line(failure)}"
        sys.stderr.write(error)
    end = ParityEnd(
        steps=trace.step,
        evaluated=False,
        exit_code=int(bool(error)),
        error=error,
        dtypes=["float64"],
        nature=list(trace.nature),
        adjusted=list(trace.adjusted),
    )
    (rank_folder(Path(task.folder), rank) / "end.json").write_bytes(msgspec.json.encode(end))
    return end.exit_code


class _Trace:
    """Writes gradients, learning rate and state of each step.

    Args:
        task: the steps, and the folder.
        rank: of this process.
    """

    def __init__(self, task: ParityTask, rank: int) -> None:
        self._task, self._rank, self._folder = task, rank, Path(task.folder)
        self.step = 0
        self.nature: dict[str, None] = {}
        self.adjusted: dict[str, None] = {}
        rank_folder(self._folder, rank).mkdir(parents=True, exist_ok=True)

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write the start, and listen to the optimizer."""
        self._model, self._optimizer = model, optimizer
        self._random = torch.random.get_rng_state()
        write_tensors(rank_folder(self._folder, self._rank) / "start.safetensors", self._weights())
        optimizer.register_step_pre_hook(lambda *_: self._before_step())

    def _before_step(self) -> None:
        self.step += 1
        gradients = {f"gradient:{name}": p.grad for name, p in self._model.named_parameters() if p.grad is not None}
        write_tensors(step_folder(self._folder, self._rank, self.step) / "gradients-0.safetensors", gradients)
        lr = [float(group["lr"]) for group in self._optimizer.param_groups]
        line = ParityStep(step=self.step, optimizer=0, lr=lr, backwards=1)
        with (rank_folder(self._folder, self._rank) / "steps.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def stepped(self) -> None:
        """Write the state after the newest step."""
        state = self._weights()
        for name, parameter in self._model.named_parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    state[f"optimizer:{name}:{key}"] = value
        write_tensors(step_folder(self._folder, self._rank, self.step) / "state.safetensors", state)
        if not torch.equal(self._random, torch.random.get_rng_state()):
            self.nature["the model or the loss draws random numbers, which one process cannot repeat"] = None

    def _weights(self) -> dict[str, Tensor]:
        named = {f"parameter:{name}": each.detach() for name, each in self._model.named_parameters()}
        return named | {f"buffer:{name}": each for name, each in self._model.named_buffers()}


def _config(job: ScriptJob, *, synchronize: bool = False) -> TrainConfig:
    """The training that `paceline train TASK` makes, in float64; its evaluations and checkpoints are left out."""
    return TrainConfig(
        task=job.script,
        precision="fp64",
        batch_norm="sync" if synchronize else "local",
        eval_every=_NEVER,
        checkpoint_every=_NEVER,
        noise_every=0,
        loader_workers=0,
    )


def _train_as_rank(job: ScriptJob, task: ParityTask, trace: _Trace) -> None:
    normalizes = any(isinstance(each, _BatchNorm) for each in load_part(_config(job)).model().modules())
    context = rank_context.init_rank_context(["paceline", "verify"])
    rank_context.join(context, 600.0)
    run = RunDir(Path(task.folder) / "training")
    built = setup.build(_config(job, synchronize=normalizes), context, run, rank_context.StopRequest())
    replica = built.replica
    if built.data.task.loss_scope == "per_rank":
        trace.nature["the loss compares the samples of a rank with each other (loss_scope of the task)"] = None
    if normalizes:
        trace.adjusted["batch normalization uses the samples of all ranks (--batch-norm sync)"] = None

    def before_forward(*_: Any) -> None:
        """Counters of batch norms are complete only now; see `copy_counters` in the loop."""
        if trace.step:
            trace.stepped()
        if trace.step >= task.steps:
            raise _EnoughSteps

    trace.begin(replica.model, replica.optimizer)
    replica.ddp.register_forward_pre_hook(before_forward)
    with contextlib.suppress(_EnoughSteps):  # all steps that are compared are recorded
        train(built)
        trace.stepped()  # the training is shorter
    built.recorder.close()


def _train_alone(job: ScriptJob, task: ParityTask, trace: _Trace) -> None:
    """One process, whole batches, no DDP: `oracle.train_alone`."""
    config = _config(job)
    part = load_part(config)
    planned = plan_training(config, part.defaults, len(part.train_data), RankEnv(0, 0, 1, 1, 1))
    steps = min(task.steps, planned.schedule.total_steps)
    batches = _batches(part, planned)

    def model() -> nn.Module:
        seed_everything(planned.config.seed)
        made = converted(part.model(), torch.device("cpu"), torch.float64)
        if task.reverse:
            with torch.no_grad():
                for each in made.parameters():
                    each.mul_(1 + _ROUNDING * torch.randn_like(each))
        models.append(made)
        return made

    def optimizer(_: list[nn.Parameter]) -> torch.optim.Optimizer:
        found = build_optimizer(planned.config.optimizer, models[-1], planned.rates.optimizer)
        found.register_step_pre_hook(lambda *_: _set_rate(found, planned, trace.step))
        trace.begin(models[-1], found)
        found.register_step_post_hook(lambda *_: trace.stepped())
        return found

    models: list[nn.Module] = []
    problem = Problem(model, part.loss, lambda _: next(batches), optimizer, planned.config.clip_norm)
    train_alone(problem, _indices(planned, steps))


def _set_rate(optimizer: torch.optim.Optimizer, planned: TrainingPlan, step: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = planned.schedule.at(step)


def _indices(planned: TrainingPlan, steps: int) -> Iterator[Sequence[int]]:
    """Samples of each global batch."""
    plan = planned.batches
    for step in range(steps):
        epoch, index = plan.locate(step)
        span = batch_span(plan.samples, plan.stage(epoch).global_batch, index)
        yield [int(each) for each in epoch_order(plan.samples, plan.seed, epoch)[span.start : span.stop]]


def _batches(part: Task, planned: TrainingPlan) -> Iterator[Any]:
    """The same global batches, whole."""
    like = Like(torch.device("cpu"), torch.float64, False)
    feed = make_feed(part.train_data, planned.batches, like, 0)
    epoch = 0
    while True:
        for micro_batches in feed.epoch(epoch, 0):
            yield from micro_batches  # one, without accumulation
        epoch += 1
