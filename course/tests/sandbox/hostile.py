"""Answers that nobody should have to trust; each runs on ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def who_am_i() -> dict[str, Any]:
    """As whom, where, and whether the group works."""
    value = torch.ones(1)
    dist.all_reduce(value)
    Path("mine.txt").write_text("written")
    sys.stdout.write(f"rank {dist.get_rank()} is here\n")
    return {"user": os.getuid(), "folder": str(Path.cwd()), "sum": value.item(), "home": os.environ["HOME"]}


def print_without_end() -> None:
    """Until it is stopped."""
    while True:
        sys.stdout.write(f"{'x' * 1_000_000}\n")


def take_memory() -> int:
    """64 GB of it."""
    return torch.ones(16_000_000_000).numel()


def fork_bomb() -> None:
    """Each child forks on."""
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


def stray(name: str) -> None:
    """A process in a session of its own, which outlives its parent."""
    child = subprocess.Popen([sys.executable, "-c", f"'{name}'; import time; time.sleep(600)"], start_new_session=True)
    sys.stdout.write(f"{child.pid}\n")


def change(path: str) -> str:
    """Somebody else's file."""
    try:
        Path(path).write_text("changed")
    except OSError as error:
        return type(error).__name__
    return "changed"


def names_in(folder: str) -> list[str]:
    """What it sees there."""
    return sorted(entry.name for entry in Path(folder).iterdir())


def with_the_environment_of_a_script() -> tuple[bool, int]:
    """No group yet; the script makes it as under torchrun."""
    before = dist.is_initialized()
    dist.init_process_group("gloo")
    value = torch.ones(1)
    dist.all_reduce(value)
    return before, int(value)
