"""From settings to a job that can be trained: everything that is built once, in the order in which it must be."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.checkpoint import manifest
from paceline.checkpoint.find import find_checkpoint, load_into
from paceline.checkpoint.state import load_model
from paceline.parallel import agree
from paceline.parallel.seat import Seat, StopRequest
from paceline.parallel.share import WORTH_BYTES, share_on_machine
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, write_info
from paceline.records.target import Target, parse_target
from paceline.tasks.data.arrays import Arrays, Like
from paceline.tasks.holdout import Part, narrow
from paceline.tasks.load import load_task
from paceline.tasks.task import Task
from paceline.train import compress, state
from paceline.train.averaging import Average
from paceline.train.checks import parse_fractions, require_shared
from paceline.train.config import TrainConfig, required
from paceline.train.describe import Description, as_session, describe
from paceline.train.duration import Duration
from paceline.train.feed import make_feed
from paceline.train.gradient_norms import NormWatch
from paceline.train.loop import Job
from paceline.train.monitor import Monitor
from paceline.train.norms.convert import synchronises, with_batch_norm, without_samples
from paceline.train.objective import Objective
from paceline.train.optim.build import build_optimizer
from paceline.train.plan import Cadence, Plan, grow
from paceline.train.precision import Precision, choose, convolutional
from paceline.train.record import Recorder
from paceline.train.resolve import Recipe, recipe, resolve, updates
from paceline.train.schedules import Schedule
from paceline.train.settle import inspect_loss, settle


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def build(config: TrainConfig, seat: Seat, run: RunDir, stop: StopRequest) -> Job:
    """Build the job; every rank calls this together.

    Raises:
        PacelineError: on all ranks when it happens on one.
    """
    agree.require_equal("configuration", repr(dataclasses.replace(config, workers="", run_dir=None)))
    task = _shared(agree.all_or_none(lambda: _load(config)), seat)
    config = resolve(config, task.defaults)
    rates = recipe(config)
    plan, schedule = _timetable(config, rates, task, seat)
    target = _target(config, task)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)

    model, precision = _make_model(task, config, rates, seat)
    config = dataclasses.replace(config, precision=precision.name)

    like = Like(seat.device, precision.parameters, convolutional(model))
    train_feed = make_feed(task.train_data, plan, like, config.loader_workers)
    eval_plan = dataclasses.replace(plan, samples=len(task.eval_data))
    eval_feed = make_feed(task.eval_data, eval_plan, like, config.loader_workers)
    optimizer = build_optimizer(required(config.optimizer), model, rates.optimizer)

    objective = Objective(model, task.loss, precision.autocast)
    sample = train_feed.sample()
    if synchronises(model):
        objective.empty = without_samples(sample)
    ddp, notes = _wrap_inspected(objective, task, plan, seat, sample)
    if config.compress != "none":
        compress.register(ddp, config.compress, objective.ledger)
    average = _average(config, rates, objective, plan, schedule)
    # After DDP, whose constructor may set every rank's buffers to rank 0's; before settling, which keeps them.
    saved, more = _resume(config, run, task)
    progress = state.Progress()
    if saved is None and config.init_from is not None:
        more += agree.all_or_none(lambda: _begin_with(model, Path(required(config.init_from))))
    if saved is not None:
        more += state.restore(saved, model, optimizer, average)
        progress = dataclasses.replace(saved.progress)
    progress.session += 1
    settle(ddp, objective, sample)
    if saved is not None:
        state.restore_random(saved)

    if seat.env.rank == 0:
        manifest.clear_aside(run.checkpoints)
        info = describe(Description(config, seat, task, plan, schedule, precision, rates), model)
        write_info(run, as_session(info, run))
    notes += [*seat.placement.notes, *more]
    if schedule.warmup_steps > schedule.total_steps:
        notes.append(f"the warm-up of {schedule.warmup_steps} steps is longer than the run: --lr is never reached")
    recorder = _open_recorder(run, seat, progress, notes)
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return Job(
        task=task,
        plan=plan,
        model=model,
        objective=objective,
        ddp=ddp,
        optimizer=optimizer,
        schedule=schedule,
        train_feed=train_feed,
        eval_feed=eval_feed,
        recorder=recorder,
        keeper=state.Keeper(run, task.name, config.keep, recorder),
        stop=stop,
        progress=progress,
        eval_every=Cadence(Duration.parse(config.eval_every, "--eval-every"), plan),
        checkpoint_every=Cadence(Duration.parse(config.checkpoint_every, "--checkpoint-every"), plan),
        target=target,
        norms=NormWatch(trained, config.noise_every, recorder),
        average=average,
        clip_norm=config.clip_norm,
        monitor=_monitor(config, rates, task, model, like),
    )


def _make_model(task: Task, config: TrainConfig, rates: Recipe, seat: Seat) -> tuple[nn.Module, Precision]:
    """The model on this rank's device, in the precision that suits it, and that precision."""
    # The same seed everywhere, so that all ranks build the same model; from then on each draws its own numbers.
    seed_everything(config.seed)
    model = agree.all_or_none(lambda: _build_model(task, config, rates, seat))
    precision = choose(config.precision, model, seat.device)
    model = _place_model(model, precision, seat.device)
    seed_everything(int(np.random.SeedSequence((config.seed, 2, seat.env.rank)).generate_state(1)[0]))
    return model, precision


def _monitor(config: TrainConfig, rates: Recipe, task: Task, model: nn.Module, like: Like) -> Monitor | None:
    if config.monitor == "none":
        return None
    return Monitor(task, model, like, samples=config.monitor_samples, settings=rates.optimizer)


def _load(config: TrainConfig) -> Task:
    part = Part(config.holdout, config.train_samples, config.seed)
    return narrow(load_task(config.task, config.task_options), part)


def _shared(task: Task, seat: Seat) -> Task:
    """The task with big arrays in memory that the ranks of a machine share."""

    def share(data: Any) -> Any:
        if not isinstance(data, Arrays) or data.mapped or data.size_bytes < WORTH_BYTES:
            return data
        return data.with_columns(share_on_machine(list(data.columns), seat.env))

    return dataclasses.replace(task, train_data=share(task.train_data), eval_data=share(task.eval_data))


def _open_recorder(run: RunDir, seat: Seat, progress: state.Progress, notes: list[str]) -> Recorder:
    recorder = Recorder(run, seat.env.rank, seat.env.world)
    recorder.start(progress.session, progress.step, progress.elapsed_s)
    dropped = recorder.writer.dropped_bytes
    torn = (f"dropped a torn last line of {dropped} bytes from {recorder.writer.path.name}",) if dropped else ()
    for note in dict.fromkeys((*notes, *torn)):
        recorder.note(note)
    return recorder


def _wrap_inspected(
    objective: Objective, task: Task, plan: Plan, seat: Seat, sample: Any
) -> tuple[DistributedDataParallel, list[str]]:
    counted = plan.usual_micro_batch if task.count == "samples" else None
    unused = agree.all_or_none(lambda: inspect_loss(objective, sample, task.name, counted))
    ddp = _wrap(objective, seat, find_unused=bool(unused))
    if not unused:
        return ddp, []
    return ddp, [f"the loss does not reach {len(unused)} parameter(s), {unused[0]} first: DDP looks for them each step"]


def _plan(config: TrainConfig, task: Task, seat: Seat) -> Plan:
    samples, batch, world = len(task.train_data), required(config.global_batch), seat.env.world
    if samples == 0 or len(task.eval_data) == 0:
        raise PacelineError(f"the task {task.name} has no data", hint="its train_data and eval_data need samples")
    require_shared(batch, world)
    return Plan(samples, batch, config.accumulate, config.seed, world, seat.env.rank)


def _build_model(task: Task, config: TrainConfig, rates: Recipe, seat: Seat) -> nn.Module:
    model = task.model()
    if not isinstance(model, nn.Module):
        raise PacelineError(
            f"the model of task {task.name} is a {type(model).__name__}, not a torch.nn.Module",
            hint="let model() build and return a fresh module",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise PacelineError(f"the model of task {task.name} has nothing to train", hint="give it parameters")

    def momentum(own: float) -> float:
        return rates.bn_momentum(own if config.bn_momentum is None else config.bn_momentum)

    return with_batch_norm(
        model, config.batch_norm, ghost_size=config.ghost_size, momentum=momentum, device=seat.device
    )


def _place_model(model: nn.Module, precision: Precision, device: torch.device) -> nn.Module:
    model = model.to(device=device, dtype=precision.parameters)
    if convolutional(model):
        # Before DDP wraps it: gradients then have the strides of their buckets' views.
        model = model.to(memory_format=torch.channels_last)
    return model


def _timetable(config: TrainConfig, rates: Recipe, task: Task, seat: Seat) -> tuple[Plan, Schedule]:
    """How the data are cut, and the rate of each step: they depend on each other when the batch grows."""
    plan = _plan(config, task, seat)
    at = parse_fractions("--decay-at", config.decay_at) if config.schedule == "step" else ()
    if config.grow_batch:
        epochs = required(config.epochs)
        most = config.max_batch if config.max_batch is not None else plan.samples // 10
        stages, late = grow(plan, epochs, at, config.decay_factor, most)
        plan = dataclasses.replace(plan, growth=stages)
        total = plan.first_step(epochs)
        drops = tuple(plan.first_step(epoch) for epoch in late)
    else:
        asked = updates(config, plan.samples)
        total = asked if asked is not None else required(config.epochs) * plan.steps_per_epoch
        drops = tuple(round(fraction * total) for fraction in at)
    return plan, Schedule(
        shape=required(config.schedule),
        lr=rates.optimizer.lr,
        total_steps=total,
        warmup_steps=_warmup_steps(config, rates, plan),
        warmup_shape=config.warmup_shape,
        warmup_from=rates.warmup_from,
        cooldown_steps=round(config.cooldown * total),
        drops=drops,
        drop_factor=config.decay_factor,
    )


def _warmup_steps(config: TrainConfig, rates: Recipe, plan: Plan) -> int:
    length = Duration.parse(required(config.warmup), "--warmup")
    if length.in_epochs:  # what a rule does to a length in epochs leaves one in steps as it is
        length = dataclasses.replace(length, value=length.value * rates.warmup)
    return length.steps(plan.steps_per_epoch)


def _average(
    config: TrainConfig, rates: Recipe, objective: Objective, plan: Plan, schedule: Schedule
) -> Average | None:
    if config.average == "none":
        return None
    if config.average == "ema":
        return Average(objective, plan, decay=rates.ema_decay, first_step=1, last_step=schedule.total_steps)
    first = max(1, math.ceil(config.swa_from * schedule.total_steps))
    return Average(objective, plan, decay=None, first_step=first, last_step=schedule.total_steps)


def _wrap(objective: Objective, seat: Seat, *, find_unused: bool) -> DistributedDataParallel:
    """DDP as this trainer needs it.

    Buffers are not broadcast at every forward: they are merged before each evaluation, and each rank's own are in
    the checkpoint. Gradients are views of their buckets, which saves a copy. Static graph stays off: its first step
    must not be under no_sync (torch dies), and it gained nothing here.
    """
    # torch 2.14 gave the switch a new name and warns of the old one.
    renamed = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    keep_buffers: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    return DistributedDataParallel(
        objective,
        device_ids=[seat.device.index] if seat.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=find_unused,
        **keep_buffers,
    )


def _target(config: TrainConfig, task: Task) -> Target | None:
    target = parse_target(config.target, config.patience) if config.target else None
    if target is not None and target.metric not in ("loss", *task.metrics):
        raise PacelineError(
            f"--target {target.metric} is not measured by the task {task.name}",
            hint=f"it measures: {', '.join(('loss', *task.metrics))}",
        )
    return target


def _begin_with(model: nn.Module, path: Path) -> list[str]:
    """Give the model the weights and buffers of a run's newest checkpoint, or of a checkpoint."""
    checkpoint = path if (path / manifest.MANIFEST).exists() else find_checkpoint(path, None)[1]
    manifest.require(checkpoint)
    load_into(model, load_model(checkpoint), checkpoint)
    return [f"begun with the weights of {checkpoint}"]


def _resume(config: TrainConfig, run: RunDir, task: Task) -> tuple[state.Saved | None, list[str]]:
    """The checkpoint to go on from, chosen and read by rank 0 for all."""
    if config.resume is None:
        return None, []

    def choose_and_load() -> tuple[state.Saved | None, list[str]]:
        path, passed = manifest.newest_complete(run.checkpoints)
        notes = [f"passed over {skipped.path.name}: {skipped.reason}" for skipped in passed]
        if path is None:
            if run.checkpoints.exists() and passed:
                notes.append("no complete checkpoint was found: starting from the beginning")
            return None, notes
        saved = state.load(path, task.name)
        return saved, [*notes, f"resumed from {path.name}"]

    return agree.from_rank_zero(choose_and_load)
