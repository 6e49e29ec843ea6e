"""run.json of a measurement."""

from __future__ import annotations

import datetime
import os
import platform
import socket
import subprocess
from typing import Any

import numpy as np
import scipy
import torch

import paceline
from paceline.landscape.choices import BATCH_NORM_WORDS
from paceline.landscape.config import LandscapeConfig, to_dict
from paceline.landscape.subject import Subject
from paceline.parallel.placement import cpu_info
from paceline.parallel.seat import Seat
from paceline.records.schema import SCHEMA, Git, RunInfo, Topology


def batch_norm_words(config: LandscapeConfig, subject: Subject) -> str:
    """How batch norm was treated."""
    return BATCH_NORM_WORDS[config.batch_norm if subject.batch_norm else "none"].format(chunk=config.chunk)


def first_words(config: LandscapeConfig, subject: Subject, samples: int, curvature: int) -> str:
    """What is looked at, on what: the first thing that a measurement says."""
    whose = "fresh weights" if subject.step is None else f"step {subject.step:,}"
    kind = {"train": "training", "eval": "evaluation"}[config.on]
    return (
        f"{whose} of {config.target}; slices on {samples:,} and curvature on {curvature:,} {kind} samples, without "
        f"augmentation; batch norm: {batch_norm_words(config, subject)}"
    )


def describe(config: LandscapeConfig, subject: Subject, seat: Seat, parameters: int) -> RunInfo:
    """Everything that is known when it starts."""
    return RunInfo(
        schema=SCHEMA,
        verb="landscape",
        name=subject.task.name,
        command=seat.command,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions={
            "paceline": paceline.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        config=to_dict(config),
        topology=Topology(
            world=seat.env.world,
            nodes=seat.env.nodes,
            backend=seat.placement.backend,
            device=seat.placement.device,
            device_name=_device_name(seat.device),
            threads_per_rank=torch.get_num_threads(),
            hostname=socket.gethostname(),
            cores=os.cpu_count(),
        ),
        precision=config.precision,
        git=_git(),
        facts=_facts(config, subject, parameters),
    )


def _facts(config: LandscapeConfig, subject: Subject, parameters: int) -> dict[str, Any]:
    return {
        "weights": subject.fingerprint,
        "checkpoint": subject.step,
        "parameters": parameters,
        "batch_norm": batch_norm_words(config, subject),
        "data_source": subject.task.data_source,
        "channels_last": subject.like.channels_last,
        "malloc": {k: v for k, v in os.environ.items() if k.startswith(("MALLOC_", "GLIBC_TUNABLES", "OMP_"))},
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    names = (line.split(":", 1)[1].strip() for line in cpu_info() if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _git() -> Git | None:
    """The state of the code in the current directory, None outside a work tree."""

    def ask(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    return Git(commit=commit, dirty=bool(ask("status", "--porcelain"))) if commit else None
