"""What run.json says of the machine and of the code that ran."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Callable

import numpy as np
import torch

import paceline
from paceline.parallel.placement import STARTED_BY, cpu_info
from paceline.parallel.rank_context import RankContext
from paceline.records.schema import Git, Topology


def versions() -> dict[str, str]:
    """Of what computes."""
    return {
        "paceline": paceline.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def topology(context: RankContext) -> Topology:
    """On what this job runs, as rank 0 sees it."""
    return Topology(
        world=context.env.world,
        nodes=context.env.nodes,
        backend=context.placement.backend,
        device=context.placement.device,
        device_name=device_name(context.device),
        threads_per_rank=torch.get_num_threads(),
        hostname=socket.gethostname(),
        cores=os.cpu_count(),
    )


def count_cuda_devices(argument: bytes, stage: Callable[[str], None]) -> bytes:
    """CUDA devices of this machine, for `pool.single_call`."""
    del argument, stage
    return str(torch.cuda.device_count()).encode()


def device_name(device: torch.device) -> str:
    """As its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    names = (line.split(":", 1)[1].strip() for line in cpu_info() if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def memory_settings() -> dict[str, str]:
    """Variables that decide how malloc and OpenMP behave."""
    return {k: v for k, v in os.environ.items() if k.startswith(("MALLOC_", "GLIBC_TUNABLES", "OMP_"))}


def started_by() -> str:
    """How this rank was started: `fork` from the fork server, `spawn: REASON`, or `torchrun`."""
    return os.environ.get(STARTED_BY, "torchrun")


def git_state() -> Git | None:
    """The state of the code in the current directory, None outside a work tree."""

    def ask(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    return Git(commit=commit, dirty=bool(ask("status", "--porcelain"))) if commit else None
