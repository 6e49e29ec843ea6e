"""Everything that the training loop needs, in groups; `setup` builds it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parallel.rank_context import StopRequest
from paceline.records.target import Target
from paceline.tasks.task import Task
from paceline.train.averaging import Average
from paceline.train.batch_plan import Cadence, Plan
from paceline.train.feed import Feed
from paceline.train.gradients import NormWatch
from paceline.train.monitor import Monitor
from paceline.train.objective import Objective
from paceline.train.recorder import Recorder
from paceline.train.schedules import Schedule
from paceline.train.training_state import Keeper, Progress


@dataclass(frozen=True)
class Replica:
    """This rank's model and what changes its weights."""

    model: nn.Module
    objective: Objective
    ddp: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    norms: NormWatch
    average: Average | None = None
    clip_norm: float | None = None


@dataclass(frozen=True)
class TrainingData:
    """The task, how its samples are cut into batches, and this rank's part of them."""

    task: Task
    plan: Plan
    train_feed: Feed
    eval_feed: Feed


@dataclass(frozen=True)
class Timetable:
    """What happens at which step."""

    schedule: Schedule
    eval_every: Cadence
    checkpoint_every: Cadence
    target: Target | None


@dataclass
class Job:
    """A training on this rank."""

    replica: Replica
    data: TrainingData
    timetable: Timetable
    recorder: Recorder
    keeper: Keeper
    stop: StopRequest
    progress: Progress
    monitor: Monitor | None = None
