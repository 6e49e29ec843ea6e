"""Which devices a job uses and which of them a rank takes: pure functions of what the machine has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.records.errors import PacelineError

STARTED_BY = "PACELINE_STARTED_BY"
"""The variable that tells ranks how they were started: `fork`, or `spawn: REASON`; torchrun does not set it."""


@dataclass(frozen=True)
class Machine:
    """What a machine offers."""

    cuda_devices: int
    cores: int


@dataclass(frozen=True)
class Placement:
    """How many workers run on a machine, and on what."""

    device: Literal["cpu", "cuda"]
    backend: Literal["gloo", "nccl"]
    workers: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankEnv:
    """A rank's place in the job, as torchrun's environment tells it; `restarts` is how often the job was restarted."""

    rank: int
    local_rank: int
    world: int
    local_world: int
    nodes: int
    restarts: int = 0

    @classmethod
    def read(cls, env: Mapping[str, str]) -> RankEnv | None:
        """The place that `env` describes, None when it is not torchrun's.

        Raises:
            PacelineError: the variables are there but hold no numbers.
        """
        if "RANK" not in env or "WORLD_SIZE" not in env:
            return None
        try:
            world = int(env["WORLD_SIZE"])
            local_world = int(env.get("LOCAL_WORLD_SIZE", world))
            rank = int(env["RANK"])
            local_rank = int(env.get("LOCAL_RANK", rank))
            nodes = int(env.get("GROUP_WORLD_SIZE", max(1, world // max(1, local_world))))
            restarts = int(env.get("TORCHELASTIC_RESTART_COUNT", 0))
        except ValueError as error:
            raise PacelineError(
                "RANK and WORLD_SIZE are set, but not as torchrun sets them",
                why=str(error),
                hint="unset them to start a job here, or start this under torchrun",
            ) from error
        return cls(rank, local_rank, world, local_world, nodes, restarts)


def usable_cores() -> int:
    """Cores that this process may use (a container's or taskset's share, not the machine's)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_info() -> list[str]:
    """Lines of /proc/cpuinfo; none where there is no such file."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def parse_workers(text: str, flag: str = "--workers") -> int | None:
    """Read a number of workers: None for auto, else a number of at least 1.

    Args:
        text: as it was given.
        flag: that it was given with, for the message.

    Raises:
        PacelineError: neither.
    """
    if text == "auto":
        return None
    try:
        count = int(text)
    except ValueError:
        raise PacelineError(f"{flag} {text} is not a number", hint=f"{flag} auto, or 1 and more") from None
    if count < 1:
        raise PacelineError(f"{flag} {count} leaves nobody to train", hint=f"{flag} auto, or 1 and more")
    return count


def place(machine: Machine, workers: str, flag: str = "--workers") -> Placement:
    """Decide device, backend and number of workers.

    Args:
        machine: what there is.
        workers: `auto` (a worker for each CUDA device, else one a core) or a number.
        flag: that it was given with, for messages.

    Raises:
        PacelineError: not a number of at least 1, or more workers than CUDA devices.
    """
    cuda = machine.cuda_devices > 0
    available = machine.cuda_devices if cuda else machine.cores
    count = parse_workers(workers, flag) or available
    if cuda and count > machine.cuda_devices:
        raise PacelineError(
            f"{flag} {count} is more than this machine's {machine.cuda_devices} CUDA device(s)",
            why="two NCCL ranks cannot share a device",
            hint=f"{flag} {machine.cuda_devices}, or {flag} auto; for several machines start it under torchrun",
        )
    notes: tuple[str, ...] = ()
    if not cuda and count > machine.cores:
        notes = (f"{count} workers share {machine.cores} core(s): right results, but slower than one worker a core",)
    return Placement("cuda" if cuda else "cpu", "nccl" if cuda else "gloo", count, notes)


def require_memory(workers: int, each_bytes: int, total_bytes: int, flag: str = "--workers") -> None:
    """Refuse more workers than the machine has memory for.

    Args:
        workers: on this machine.
        each_bytes: what a worker takes for itself, but for its model and data.
        total_bytes: the memory of the machine, or of the container.
        flag: that the number was given with.

    Raises:
        PacelineError: naming how many there is room for.
    """
    if workers * each_bytes <= total_bytes:
        return
    most, giga = max(1, total_bytes // each_bytes), 1e9
    raise PacelineError(
        f"{flag} {workers} needs {workers * each_bytes / giga:,.0f} GB of memory, and there are "
        f"{total_bytes / giga:,.0f} GB",
        why=f"each worker is a process of its own, which takes {each_bytes / giga:.3f} GB before its model and data",
        hint=f"at most {flag} {most}; one a core is fastest: {flag} auto",
    )


def place_rank(machine: Machine, env: RankEnv) -> Placement:
    """Device and backend of a rank that torchrun started; the device's index is its local rank.

    Raises:
        PacelineError: more ranks on this machine than CUDA devices.
    """
    if 0 < machine.cuda_devices < env.local_world:
        raise PacelineError(
            f"{env.local_world} ranks were started on a machine with {machine.cuda_devices} CUDA device(s)",
            why="two NCCL ranks cannot share a device",
            hint=f"torchrun --nproc-per-node {machine.cuda_devices}",
        )
    return place(machine, str(env.local_world))
