"""This machine, for jobs of our own: its CUDA devices, what ranks find in their environment, and the fork server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.launch.tuning import cpu_settings
from paceline.pool.processes import TORCH, ForkServer, fork_server
from paceline.pool.single_call import call_apart

_DEVICES = ("nvidiactl", "nvidia0", "nvgpu", "nvhost-ctrl-gpu", "kfd", "dxg")
"""In /dev, at least one for each driver that torch.cuda can use: NVIDIA's (servers, Tegra), AMD's and that of WSL."""


def may_have_cuda(env: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> bool:
    """True if this machine may have CUDA devices: torch has to count them. False is certain."""
    if env.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return any((devices / name).exists() for name in _DEVICES)


def job_environment(device: str | None = None) -> dict[str, str]:
    """The environment of ranks: this process's, with what makes workers on CPUs faster.

    Args:
        device: of the ranks, `cpu` or `cuda`; None where it is not known yet.
    """
    cpu = device == "cpu" or (device is None and not may_have_cuda())
    settings = cpu_settings(os.environ, threads=1 if cpu else None, allocator=cpu)
    return {**os.environ, **{setting.name: setting.value for setting in settings}}


def job_server(modules: Sequence[str] = (), device: str | None = None) -> ForkServer:
    """The fork server for ranks, started on the first call: it then loads torch and `modules` in its own time."""
    return fork_server(job_environment(device), (TORCH, *modules))


def cuda_devices() -> int:
    """CUDA devices of this machine, counted in a process of its own: counting may initialize CUDA."""
    if not may_have_cuda():
        return 0
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        found = call_apart(job_server(), "paceline.parallel.host:count_cuda_devices", output=nowhere)
    finally:
        os.close(nowhere)
    return int(found) if isinstance(found, bytes) else 0
