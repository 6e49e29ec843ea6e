"""`paceline plan batch`: which batch size, with how many workers, at which rate."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paceline.cli.options import command_from
from paceline.plan.batch_config import BatchConfig, check
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from paceline.plan.batch_result import Question
    from paceline.records.plan import Branch
    from paceline.records.rundir import RunDir

HELP = """Which batch size, with how many workers, at which learning rate? From runs to a target at several batches, or,
as a first indication, from the gradient noise of one run.

\b
    paceline plan batch runs/2026-01-31_12-00-00_fashion-mnist
    paceline plan batch fashion-mnist --target accuracy=0.90 --batches 32,128,512,2048
    paceline plan batch runs/sweep-* --target accuracy=0.90 --speed runs/2026-01-31_13-00-00_plan-speed-fashion-mnist
    paceline plan batch RUN --confirm --batches 128,512,2048
"""
CONTROL = ("format", "train_workers", "workers", "data_dir", "speed", "efficiency")


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("batch", help=HELP)(command_from(BatchConfig, "targets", run_batch, HELP))


def run_batch(given: dict[str, Any]) -> None:
    """Carry out `paceline plan batch` with what the user gave."""
    from paceline.cli.plan_frame import open_plan, resumed, show_plan, to_be_resumed
    from paceline.records.plan import write_plan
    from paceline.records.rundir import run_lock

    config = BatchConfig(**resumed("batch", {"targets": [], **given}, CONTROL))
    check(config)
    if config.task is None and not config.confirm:  # nothing is trained: a refusal leaves no directory behind
        result = _from_runs(config, [Path(path) for path in config.targets], _question(config))
        run = open_plan("batch", result.task, dataclasses.asdict(config), config.run_dir, config.resume)
    else:
        name = Path(config.task).stem if config.task is not None else Path(config.targets[0]).name
        run = open_plan("batch", name, dataclasses.asdict(config), config.run_dir, config.resume)
        with run_lock(run), to_be_resumed("batch", run):
            result = _of_task(config, run) if config.task is not None else _confirmed(config, run)
    write_plan(run, result)
    show_plan(run, config.format)


def _question(config: BatchConfig, **more: Any) -> Question:
    from paceline.plan.batch_result import Question
    from paceline.plan.speed import model_of
    from paceline.records.plan import SpeedResult, read_plan

    speed = None
    if config.speed is not None:
        found = read_plan(Path(config.speed))
        if not isinstance(found, SpeedResult):
            raise PacelineError(f"--speed {config.speed} is another plan", hint="a directory of paceline plan speed")
        speed = model_of(found)
    return Question(config.worker_counts, config.efficiency, config.goal, speed, **more)


def _from_runs(config: BatchConfig, paths: list[Path], question: Question) -> Any:
    from paceline.plan.batch_result import from_noise, from_runs
    from paceline.plan.rows import require_alike

    require_alike(paths)
    return from_runs(paths, question) if len(paths) > 1 else from_noise(paths[0], question)


def _of_task(config: BatchConfig, run: RunDir) -> Any:
    from paceline.cli.plan_frame import progress_of_trainings
    from paceline.studies.batch_sweep import LENGTHS, Sweep, sweep
    from paceline.studies.trainings import carry_out
    from paceline.tasks.table import BUILT_IN

    task = config.task or ""
    sizes = config.batch_sizes
    if sizes is None:
        sizes = [times * BUILT_IN[task].defaults.global_batch for times in LENGTHS]
    trainings = sweep(Sweep(sizes, config.seeds, config.target or "", config.lr_rule, config.epochs, config.warmup))
    with progress_of_trainings(len(trainings), config.format) as tell:
        runs = carry_out(trainings, run.path / "runs", task, _shared(config), tell=tell)
    return _from_runs(config, [one.path for one in runs.values()], _question(config))


def _confirmed(config: BatchConfig, run: RunDir) -> Any:
    from paceline.cli.plan_frame import progress_of_trainings
    from paceline.plan.batch_result import from_noise
    from paceline.plan.branch import samples_of_a_branch, settle
    from paceline.plan.rows import train_info
    from paceline.records.plan import Branch
    from paceline.stats.goodput import gain
    from paceline.studies.batch_sweep import BRANCHES, branches, last_loss
    from paceline.studies.trainings import carry_out

    parent = Path(config.targets[0])
    info = train_info(parent)
    assert info.batch is not None
    assert info.task is not None
    base = info.batch.global_batch
    sizes = sorted({base, *(config.batch_sizes or [times * base for times in BRANCHES])})
    noise = from_noise(parent, _question(config)).noise[-1].noise_scale.value or float(info.task.train_samples)
    samples = samples_of_a_branch(info.task.total_steps * base, len(sizes) * config.seeds)
    trainings = branches(parent, sizes, config.seeds, samples, [gain(noise, base, size) for size in sizes])
    with progress_of_trainings(len(trainings), config.format) as tell:
        runs = carry_out(trainings, run.path / "runs", str(info.config["task"]), _shared(config), tell=tell)
    losses: dict[int, list[float]] = {}
    records: list[Branch] = []
    for training, (name, one) in zip(trainings, runs.items(), strict=True):
        size = int(name.split("-")[1])
        loss = last_loss(one)
        losses.setdefault(size, []).append(loss)
        records.append(
            Branch(
                run=str(one.path),
                batch=size,
                seed=int(training.name.split("-")[3]),
                samples=samples,
                loss=loss if loss == loss else None,
            )
        )
    return from_noise(parent, _question(config, settled=settle(losses), branches=records))


def _shared(config: BatchConfig) -> tuple[str, ...]:
    flags = ["--workers", config.train_workers]
    return tuple(flags + (["--data-dir", config.data_dir] if config.data_dir is not None else []))
