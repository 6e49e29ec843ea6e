"""What `paceline run` is going to do, as data. Making a plan writes nothing, starts nothing and changes nothing.

The job itself is torch's: its parser reads the flags, and its functions make the launch configuration. The plan adds
the workers' settings, each with its reason, and the run directory. `execute` carries it out.
"""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed import run as torchrun
from torch.distributed.launcher.api import LaunchConfig

from paceline.launch.torchrun_flags import check, one_message, parse
from paceline.launch.tuning import Setting, cpu_settings, temporary_environment
from paceline.records.errors import PacelineError
from paceline.records.rundir import DEFAULT_ROOT, RunDir, run_dir_name

RUN_DIR_VARIABLE = "PACELINE_RUN_DIR"
"""Names the run directory, absolute, to every worker."""


@dataclass(frozen=True)
class LaunchPlan:
    """A job that can be started.

    Attributes:
        argv: what follows `paceline run`.
        flags: the same as torch's parser read it, with the meeting point chosen.
        name: of the run.
        entrypoint: what each worker runs, a program or a function of torch's, and `arguments` of it.
        config: torch's launch configuration; its logs are discarded, `execute` puts the run directory's in their place.
        workers: on this machine.
        nodes: least and most machines.
        settings: environment variables for the workers, each with its reason.
        environment: these, and those that torchrun itself sets in the launching process.
        run_dir: where the run is recorded; `execute` appends a number where another run took a planned name.
    """

    argv: tuple[str, ...]
    flags: Mapping[str, Any]
    name: str
    entrypoint: str | Callable[..., Any]
    arguments: tuple[str, ...]
    config: LaunchConfig
    workers: int
    nodes: tuple[int, int]
    settings: tuple[Setting, ...]
    environment: Mapping[str, str]
    run_dir: Path

    @property
    def world(self) -> int:
        """Ranks of the job, at most."""
        return self.workers * self.nodes[1]

    @property
    def log_dir(self) -> str:
        """Where the workers' output goes."""
        return self.flags["log_dir"] or str(RunDir(self.run_dir).logs)

    @property
    def added_environment(self) -> dict[str, str]:
        """Environment variables to set in the launching process, from which workers inherit them."""
        return {**self.environment, RUN_DIR_VARIABLE: str(self.run_dir.resolve())}


def plan_launch(argv: Sequence[str], now: datetime.datetime | None = None) -> LaunchPlan:
    """Plan a job, as `torchrun` with the same arguments would start it.

    Args:
        argv: what follows `paceline run`.
        now: goes into the name of the run directory.

    Raises:
        PacelineError: the request cannot be carried out.
    """
    flags = parse(argv)
    workers, nodes = check(flags)
    settings = _settings(flags, workers)
    environment = {each.name: each.value for each in settings}
    with one_message("cannot start the job"), temporary_environment(environment):  # torchrun sets one itself
        quiet = argparse.Namespace(**vars(flags) | {"log_dir": os.devnull, "logs_specs": None})
        config, entrypoint, arguments = torchrun.config_from_args(quiet)
        environment |= {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    name = flags.training_script if flags.module else Path(flags.training_script).stem
    return LaunchPlan(
        argv=tuple(argv),
        flags=vars(flags),
        name=name,
        entrypoint=entrypoint,
        arguments=tuple(arguments),
        config=config,
        workers=workers,
        nodes=nodes,
        settings=settings,
        environment=environment,
        run_dir=_run_dir(flags.run_dir, name, nodes[1], now),
    )


def _settings(flags: argparse.Namespace, workers: int) -> tuple[Setting, ...]:
    if flags.no_tuning:
        return ()
    # One worker keeps all threads, as under torchrun, which limits them only where there are several.
    threads = 1 if workers > 1 else None
    return cpu_settings(os.environ, threads=threads, allocator=not torch.accelerator.is_available())


def _run_dir(given: Path | None, name: str, most_nodes: int, now: datetime.datetime | None) -> Path:
    if given is None:
        return DEFAULT_ROOT / run_dir_name(name, now)
    # Several machines may share one file system; the first of them writes run.json.
    if RunDir(given).exists() and most_nodes == 1:
        raise PacelineError(
            f"{given} holds a run already", hint="choose another --run-dir, or leave it out for a new one"
        )
    return given
