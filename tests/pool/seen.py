"""What a process of the fork server sees of itself, as JSON; and modules that make a fork unsafe."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

Stage = Callable[[str], None]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def random_numbers(argument: bytes, stage: Stage) -> bytes:
    """One of each generator."""
    import numpy as np
    import torch

    return _json([random.random(), float(np.random.rand()), float(torch.rand((), dtype=torch.float64))])


def hash_of_a_word(argument: bytes, stage: Stage) -> bytes:
    """Depends on the hash seed."""
    return _json(hash("word"))


def handles(argument: bytes, stage: Stage) -> bytes:
    """What each descriptor leads to, but for that of the list itself."""
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            found[entry.name] = str(entry.readlink())
        except FileNotFoundError:
            continue
    return _json(found)


def signals(argument: bytes, stage: Stage) -> bytes:
    """Handlers of Python, blocked signals, and the descriptor that is woken by signals."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
    blocked = sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    return _json([[str(signal.getsignal(number)) for number in numbers], blocked, signal.set_wakeup_fd(-1)])


def threads(argument: bytes, stage: Stage) -> bytes:
    """Of torch, as OpenMP was told when it was loaded."""
    import torch

    return _json(torch.get_num_threads())


def memory(argument: bytes, stage: Stage) -> bytes:
    """KiB that are resident, and that belong to this process alone."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return _json([int(fields[name].split()[0]) for name in ("Rss", "Private_Dirty")])


def place(argument: bytes, stage: Stage) -> bytes:
    """Working directory, arguments, and the first folder in which modules are looked for."""
    return _json([str(Path.cwd()), sys.argv, sys.path[0]])
