"""Loader processes of a rank: how they start, what reaches them, how they end.

They work with each start method of multiprocessing. `fork` copies the rank as it is. `spawn` and `forkserver` begin
without anything of the rank and get the dataset pickled; the task's file has to be imported there by its path, since no
import finds it by name. Both begin as copies of a fork server that has imported torch: with an interpreter of its own,
each loader process of each epoch would take seconds to do so.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from paceline.parallel.exit import die_with_parent
from paceline.parallel.rank_context import SAVE_SIGNALS
from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Arrays
from paceline.tasks.data.dataset_hooks import collate_of
from paceline.tasks.task_loader import TaskFile

_FOR_THE_RANK = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *SAVE_SIGNALS})
"""Signals that mean the rank; launchers and clusters send them to all of its processes."""


def start_method() -> str:
    """How loader processes start: as the task's file has set it, else by fork on Linux.

    Fork was Linux's default up to Python 3.13. It starts at once and needs no pickling, so a dataset may be large, be
    of a local class and hold lambdas. Loader processes touch neither the device nor the process group.
    """
    chosen: str | None = multiprocessing.get_start_method(allow_none=True)  # typeshed says that it is never None
    if chosen is None and sys.platform == "linux":
        return "fork"
    methods = multiprocessing.get_all_start_methods()
    return "fork" if chosen == "fork" else "forkserver" if "forkserver" in methods else "spawn"


def check_loadable(name: str, data: Any, workers: int) -> None:
    """Refuse a dataset that cannot be sent to loader processes, before any starts.

    Args:
        name: the field of the task, for the message.
        data: `Arrays`, which have no loader processes, or a map-style dataset.
        workers: loader processes of a rank; 0 loads in the rank itself.

    Raises:
        PacelineError: the start method pickles, and the dataset cannot be pickled.
    """
    method = start_method()
    if isinstance(data, Arrays) or not workers or method == "fork":
        return
    try:
        with Path(os.devnull).open("wb") as nowhere:
            ForkingPickler(nowhere).dump((data, collate_of(data)))
    except Exception as error:
        raise PacelineError(
            f"{name} cannot be sent to loader processes, which start by "
            f"{multiprocessing.get_start_method(allow_none=True) or method}",
            why=f"{type(error).__name__}: {error}",
            hint="define its classes and functions at the top level of the file, leave out set_start_method (fork "
            "pickles nothing), or use --loader-workers 0",
        ) from error


class Seeded(Dataset[Any]):
    """A dataset whose random numbers depend on (seed, epoch, sample) only.

    So an augmentation inside `__getitem__` gives the same sample on any rank, in any worker, before and after a
    resume. The generators of the process that calls it are put back.

    Args:
        files: of tasks, imported in a new interpreter before the dataset is unpickled.
        dataset: map-style.
        seed: of the run.
    """

    def __init__(self, files: tuple[TaskFile, ...], dataset: Any, seed: int) -> None:
        self._files = files
        self.dataset = dataset
        self.seed = seed

    def __reduce__(self) -> Any:
        # Arguments are unpickled in order, so the files are imported before a class of theirs is looked for.
        return Seeded, (self._files, self.dataset, self.seed)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, token: tuple[int, int]) -> Any:
        epoch, index = token
        words = np.random.SeedSequence((self.seed, epoch, index)).generate_state(3, np.uint32)
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            random.seed(int(words[0]))
            np.random.seed(int(words[1]))
            torch.default_generator.manual_seed(int(words[2]))  # torch.manual_seed would move CUDA's, too
            return self.dataset[index]
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])


@contextlib.contextmanager
def starting(method: str) -> Iterator[None]:
    """While loader processes start: signals that mean the rank wait, and a new process inherits that they do.

    Otherwise a signal to the whole process group would end a loader process before it can ignore it.
    """
    if method != "fork":
        resource_tracker.ensure_running()  # starting it unblocks signals
        _import_once()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_RANK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _import_once() -> None:
    """Have the fork server import what every loader process needs, unless the user has chosen its modules."""
    server = getattr(forkserver, "_forkserver", None)
    if getattr(server, "_preload_modules", None) == ["__main__"]:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        ours = [spec.name] if spec is not None and spec.name.startswith("paceline.") else []
        multiprocessing.set_forkserver_preload([__name__, *ours])


def begin(worker: int) -> None:
    """First call in a loader process: end with the rank, and leave signals that mean the rank to the rank."""
    del worker
    _let_the_fork_server_end()
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)
    for number in _FOR_THE_RANK:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_RANK)


def _let_the_fork_server_end() -> None:
    """Close this process's copy of the pipe by which multiprocessing's fork server notices that its owner has died.

    It hands a copy to every child, so that the server outlives the owner as long as they live. Here it is the other way
    round: the rank dies, the server ends, and with it its children (parent-death signal).
    """
    server = getattr(forkserver, "_forkserver", None)
    handle = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and handle is not None:
        os.close(handle)
        server._forkserver_alive_fd = None
