"""From settings to a job that can be trained: everything that is built once, in the order in which it must be."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paceline.checkpoint import manifest
from paceline.checkpoint.find import initialize
from paceline.parallel import agree
from paceline.parallel.rank_context import RankContext, StopRequest
from paceline.parallel.share import WORTH_BYTES, share_on_machine
from paceline.records.rundir import RunDir, write_info
from paceline.records.validation import Validation
from paceline.tasks.data.arrays import Arrays, Like
from paceline.tasks.task import Task
from paceline.train import compress, training_state
from paceline.train.averaging import Average
from paceline.train.batch_plan import Cadence
from paceline.train.config import TrainConfig
from paceline.train.ddp_warmup import warm_up_ddp
from paceline.train.feed import Feed, make_feed
from paceline.train.gradients import NormWatch
from paceline.train.job import Job, Replica, Timetable, TrainingData
from paceline.train.model import give_empty_batch, make_model, refuse_single_samples
from paceline.train.monitor import Monitor
from paceline.train.objective import Objective
from paceline.train.optim.build import build_optimizer
from paceline.train.recorder import Recorder, as_session, describe
from paceline.train.replica import wrap
from paceline.train.resolve import TrainingPlan, plan_training
from paceline.train.schedules import Duration, rate_jump
from paceline.train.task_validation import load_part, target_of


def build(
    given: TrainConfig, context: RankContext, run: RunDir, stop: StopRequest, validation: Validation | None = None
) -> Job:
    """Build the job; every rank calls this together.

    Args:
        given: settings as the user gave them.
        context: this rank's.
        run: its directory.
        stop: what this rank was asked to do.
        validation: what trying the task found out, for the record; None where it was not tried.

    Raises:
        PacelineError: on all ranks when it happens on one.
    """
    agree.require_equal("configuration", repr(dataclasses.replace(given, workers="", run_dir=None)))
    task = _shared(agree.all_or_none(lambda: load_part(given)), context)
    planned = plan_training(given, task.defaults, len(task.train_data), context.env)
    target = target_of(given, task)
    if given.deterministic:
        _use_deterministic_algorithms()

    model, precision, like = make_model(task, planned, context)
    planned = dataclasses.replace(planned, config=dataclasses.replace(planned.config, precision=precision.name))
    config, plan, schedule = planned.config, planned.batches, planned.schedule

    train_feed = make_feed(task.train_data, plan, like, config.loader_workers)
    eval_plan = dataclasses.replace(plan, samples=len(task.eval_data))
    eval_feed = make_feed(task.eval_data, eval_plan, like, config.loader_workers)
    optimizer = build_optimizer(config.optimizer, model, planned.rates.optimizer)

    objective = Objective(model, task.loss, precision.autocast)
    sample = train_feed.sample()
    give_empty_batch(objective, plan, schedule.total_steps, train_feed)
    refuse_single_samples(objective, plan, schedule.total_steps, train_feed)
    ddp, notes = wrap(objective, task, plan, context, sample, (config.optimizer, optimizer))
    if config.compress != "none":
        compress.register(ddp, config.compress, objective)
    monitor = agree.all_or_none(lambda: _monitor(planned, task, model, like))
    average = _average(planned, objective, train_feed)
    # On the weights that the seed gives, so that the order in which gradients become ready, and with it every sum, is
    # the same in a resumed run, whatever branches its later weights and buffers take.
    warm_up_ddp(ddp, objective, sample)
    # After DDP, whose constructor may set every rank's buffers to rank 0's.
    progress, saved, more = _begin(config, run, task, model, optimizer, average)
    if saved is not None:
        if jump := rate_jump(schedule, float(saved.optimizer["param_groups"][0]["lr"]), progress.step):
            more.append(jump)
        training_state.restore_random(saved)

    if context.env.rank == 0:
        manifest.clear_aside(run.checkpoints)
        info = describe(planned, task, model, context, precision, validation)
        write_info(run, as_session(info, run))
    notes += [*context.placement.notes, *more, *_remarks(planned, task)]
    notes += validation.notes if validation is not None else []
    recorder = _open_recorder(run, context, progress, notes)
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norms = NormWatch(trained, config.noise_every, recorder, reported=task.count == "reported")
    return Job(
        Replica(model, objective, ddp, optimizer, norms, average, config.clip_norm),
        TrainingData(task, plan, train_feed, eval_feed),
        Timetable(
            schedule,
            Cadence(Duration.parse(config.eval_every, "--eval-every"), plan),
            Cadence(Duration.parse(config.checkpoint_every, "--checkpoint-every"), plan),
            target,
        ),
        recorder=recorder,
        keeper=training_state.Keeper(run, task.name, config.keep, recorder),
        stop=stop,
        progress=progress,
        monitor=monitor,
    )


def _use_deterministic_algorithms() -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def _monitor(of: TrainingPlan, task: Task, model: nn.Module, like: Like) -> Monitor | None:
    if of.config.monitor == "none":
        return None
    return Monitor(task, model, like, samples=of.config.monitor_samples, settings=of.rates.optimizer)


def _remarks(of: TrainingPlan, task: Task) -> list[str]:
    """What a person may not have meant."""
    config, schedule, samples = of.config, of.schedule, of.batches.samples
    notes = []
    if config.global_batch > samples:
        notes.append(
            f"--global-batch {config.global_batch:,} is more than the {samples:,} training samples: each step "
            "takes all of them, and a scaling rule counts no more"
        )
    if config.holdout and not isinstance(task.eval_data, Arrays):
        notes.append(
            "--holdout evaluates on samples as the training set gives them: augmented, where its __getitem__ does that"
        )
    if schedule.warmup_steps > schedule.total_steps:
        notes.append(f"the warm-up of {schedule.warmup_steps} steps is longer than the run: --lr is never reached")
    return notes


def _begin(
    config: TrainConfig,
    run: RunDir,
    task: Task,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Average | None,
) -> tuple[training_state.Progress, training_state.Saved | None, list[str]]:
    """Where the run begins: a checkpoint of its own, the weights of another run, or nothing."""
    saved, notes = _resume(config, run, task)
    progress = training_state.Progress()
    if saved is not None:
        notes += training_state.restore(saved, model, optimizer, average)
        progress = dataclasses.replace(saved.progress)
    elif config.init_from is not None:
        source = Path(config.init_from)
        notes.append(f"begun with the weights of {agree.all_or_none(lambda: initialize(model, source))}")
    progress.session += 1
    return progress, saved, notes


def _shared(task: Task, context: RankContext) -> Task:
    """The task with big arrays in memory that the ranks of a machine share."""

    def share(data: Any) -> Any:
        if not isinstance(data, Arrays) or data.mapped or data.size_bytes < WORTH_BYTES:
            return data
        return data.with_columns(share_on_machine(list(data.columns), context.env))

    return dataclasses.replace(task, train_data=share(task.train_data), eval_data=share(task.eval_data))


def _open_recorder(run: RunDir, context: RankContext, progress: training_state.Progress, notes: list[str]) -> Recorder:
    recorder = Recorder(run, context.env.rank, context.env.world, context.env.restarts)
    recorder.start(progress.session, progress.step, progress.elapsed_s)
    dropped = recorder.writer.dropped_bytes
    torn = (f"dropped a torn last line of {dropped} bytes from {recorder.writer.path.name}",) if dropped else ()
    for note in dict.fromkeys((*notes, *torn)):
        recorder.note(note)
    return recorder


def _average(of: TrainingPlan, objective: Objective, feed: Feed) -> Average | None:
    if of.config.average == "none":
        return None
    last = of.schedule.total_steps
    swa = of.config.average == "swa"
    first = max(1, math.ceil(of.config.swa_from * last)) if swa else 1
    decay = None if swa else of.rates.ema_decay
    return Average(objective, feed, of.batches, decay=decay, first_step=first, last_step=last)


def _resume(config: TrainConfig, run: RunDir, task: Task) -> tuple[training_state.Saved | None, list[str]]:
    """The checkpoint to go on from, chosen and read by rank 0 for all."""
    if config.resume is None:
        return None, []

    def choose_and_load() -> tuple[training_state.Saved | None, list[str]]:
        path, passed = manifest.newest_complete(run.checkpoints)
        notes = [f"passed over {skipped.path.name}: {skipped.reason}" for skipped in passed]
        if path is None:
            if run.exists():
                notes.append("there is no checkpoint to resume from: this run starts from the beginning")
            return None, notes
        saved = training_state.load(path, task.name)
        return saved, [*notes, f"resumed from {path.name}"]

    return agree.from_rank_zero(choose_and_load)
