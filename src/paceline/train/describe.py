"""run.json: what a run is, as far as it is known when it starts."""

from __future__ import annotations

import dataclasses
import datetime

import msgspec
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.parallel.host import git_state, memory_settings, topology, versions
from paceline.parallel.partition import largest_micro_batch
from paceline.parallel.seat import Seat
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import SCHEMA, Batch, RunInfo, TaskFacts
from paceline.records.validation import Validation
from paceline.tasks.task import Task
from paceline.train.batch_plan import Plan
from paceline.train.compress import sync_bytes
from paceline.train.config import TrainConfig
from paceline.train.evaluate import trained_parameters
from paceline.train.precision import Precision, convolutional
from paceline.train.resolve import Recipe
from paceline.train.schedules import Schedule


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


@dataclasses.dataclass(frozen=True)
class Description:
    """What run.json is made of."""

    config: TrainConfig
    seat: Seat
    task: Task
    plan: Plan
    schedule: Schedule
    precision: Precision
    rates: Recipe
    validation: Validation | None = None


def describe(of: Description, model: nn.Module) -> RunInfo:
    """Everything for run.json."""
    seat, plan, task, precision = of.seat, of.plan, of.task, of.precision
    return RunInfo(
        schema=SCHEMA,
        verb="train",
        name=task.name,
        command=seat.command,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=versions(),
        config=dataclasses.asdict(of.config),
        topology=topology(seat),
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
            **({"validation": of.validation.facts} if of.validation is not None else {}),
        },
    )


def _strategy(of: Description, model: nn.Module) -> dict[str, object]:
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
    if of.plan.growth:
        facts["batch_growth"] = [[stage.epoch, stage.global_batch] for stage in of.plan.growth]
    return facts
