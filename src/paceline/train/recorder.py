"""What a training writes down: run.json when it starts, events while it goes on."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from pathlib import Path
from typing import Literal

import msgspec
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.parallel.host import git_state, memory_settings, started_by, topology, versions
from paceline.parallel.partition import largest_micro_batch
from paceline.parallel.rank_context import RankContext
from paceline.records.event import CheckpointReason, Event
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import (
    SCHEMA,
    Batch,
    Checkpoint,
    Evaluation,
    Measure,
    Note,
    RunInfo,
    Start,
    TaskFacts,
)
from paceline.records.validation import Validation
from paceline.records.writer import EventWriter
from paceline.tasks.task import Task
from paceline.train.compress import sync_bytes
from paceline.train.model import Precision, convolutional
from paceline.train.resolve import TrainingPlan


class Recorder:
    """Events of one rank. It is the rank's only clock, so that all times of a run mean the same.

    Args:
        run: its directory.
        rank, world: of this process.
        restarts: how often the job was restarted; its events then carry the attempt.
    """

    def __init__(self, run: RunDir, rank: int, world: int, restarts: int = 0) -> None:
        self.run = run
        self.rank = rank
        self.world = world
        self.writer = EventWriter(run.events(rank), attempt=restarts + 1 if restarts else msgspec.UNSET)
        self._began = 0.0
        self._before_s = 0.0
        self._said: set[str] = set()

    def start(self, session: int, step: int, elapsed_s: float) -> None:
        """The clock runs from here; `elapsed_s` is what earlier sessions spent."""
        self._began = time.perf_counter()
        self._before_s = elapsed_s
        self.writer.write(
            Start(
                session=session,
                time_unix_s=time.time(),
                world=self.world,
                step=step,
                resumed_from=step if session > 1 else None,
                elapsed_s=elapsed_s,
                pid=os.getpid(),
            )
        )

    def elapsed_s(self, now: float | None = None) -> float:
        """Seconds of training up to `now` (a `perf_counter` reading), earlier sessions included."""
        return self._before_s + (time.perf_counter() if now is None else now) - self._began

    def write(self, event: Event) -> None:
        """An event whose times the caller has taken."""
        self.writer.write(event)

    def has_evaluation(self, step: int) -> bool:
        """Whether an earlier session recorded the evaluation of this step."""
        return any(
            isinstance(event, Evaluation) and event.step == step
            for event in EventStream(self.run.events(self.rank), only=Evaluation)
        )

    def evaluation(self, step: int, epoch: float, samples: int, began: float, metrics: dict[str, Measure]) -> None:
        """One evaluation; `began` is a `perf_counter` reading."""
        now = time.perf_counter()
        self.writer.write(
            Evaluation(
                step=step,
                epoch=epoch,
                samples=samples,
                elapsed_s=self.elapsed_s(now),
                duration_s=now - began,
                metrics=metrics,
            )
        )

    def checkpoint(self, step: int, path: Path, began: float, size_bytes: int, reason: CheckpointReason) -> None:
        """One complete checkpoint."""
        now = time.perf_counter()
        self.writer.write(
            Checkpoint(
                step=step,
                path=str(path.relative_to(self.run.path)),
                duration_s=now - began,
                size_bytes=size_bytes,
                elapsed_s=self.elapsed_s(now),
                reason=reason,
            )
        )

    def note(self, message: str, level: Literal["info", "warning"] = "info") -> None:
        """Something a person should know."""
        self.writer.write(Note(message=message, level=level))

    def note_once(self, message: str) -> None:
        """As `note`, unless it has been said."""
        if message not in self._said:
            self._said.add(message)
            self.note(message)

    def close(self) -> None:
        """No more events follow."""
        self.writer.close()


def as_session(info: RunInfo, run: RunDir) -> RunInfo:
    """`info`, with the start and the command of the run's first session; all sessions are in facts."""
    session = {
        "command": info.command,
        "started_at": info.started_at,
        "world": info.batch.world if info.batch else None,
    }
    if not run.exists():
        return msgspec.structs.replace(info, facts={**info.facts, "sessions": [session]})
    first = read_info(run.path)
    sessions = [*first.facts.get("sessions", []), session]
    return msgspec.structs.replace(
        info, command=first.command, started_at=first.started_at, facts={**info.facts, "sessions": sessions}
    )


def describe(
    of: TrainingPlan,
    task: Task,
    model: nn.Module,
    context: RankContext,
    precision: Precision,
    validation: Validation | None,
) -> RunInfo:
    """run.json: what a run is, as far as it is known when it starts."""
    plan = of.batches
    return RunInfo(
        schema=SCHEMA,
        verb="train",
        name=task.name,
        command=context.command,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=versions(),
        config=dataclasses.asdict(of.config),
        topology=topology(context),
        batch=Batch(
            per_rank=largest_micro_batch(plan.global_batch, plan.world, plan.accumulation),
            accumulation=plan.accumulation,
            world=plan.world,
            global_batch=plan.global_batch,
        ),
        task=TaskFacts(
            name=task.name,
            parameters=trained_parameters(model),
            train_samples=plan.samples,
            eval_samples=len(task.eval_data),
            steps_per_epoch=plan.steps_per_epoch,
            total_steps=of.schedule.total_steps,
            data_source=task.data_source,
            unit=task.unit,
        ),
        precision=precision.name,
        git=git_state(),
        facts={
            "precision_reason": precision.reason,
            "warmup_steps": of.schedule.warmup_steps,
            **_strategy(of, model),
            "channels_last": convolutional(model),
            "malloc": memory_settings(),
            "started_by": started_by(),
            **({"validation": validation.facts} if validation is not None else {}),
        },
    )


def _strategy(of: TrainingPlan, model: nn.Module) -> dict[str, object]:
    """What the scaling rule and its like made of the settings: the numbers that are really used."""
    config, used = of.config, of.rates.optimizer
    facts: dict[str, object] = {"lr": used.lr, "sync_bytes_per_step": sync_bytes(model, config.compress)}
    if config.lr_rule != "none":
        facts["rule"] = {
            "name": config.lr_rule,
            "batch_times": of.rates.growth,
            "micro_batch_times": of.rates.micro_growth,
            "lr": used.lr,
            "betas": list(used.betas),
            "eps": used.eps,
            "weight_decay": used.weight_decay,
            "ema_decay": of.rates.ema_decay,
            "bn_momenta": sorted({m.momentum for m in model.modules() if isinstance(m, _BatchNorm) and m.momentum}),
        }
    if of.batches.growth:
        facts["batch_growth"] = [[stage.epoch, stage.global_batch] for stage in of.batches.growth]
    return facts


def trained_parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
