"""Attaches the observer to a rank: the one entry from a process that `paceline run` started."""

from __future__ import annotations

import atexit
import faulthandler
import functools
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from paceline import __version__
from paceline.observe.model_registry import ModelRegistry
from paceline.observe.probes.backward_passes import BackwardPasses
from paceline.observe.probes.data_loaders import DataLoaders
from paceline.observe.probes.files import Files
from paceline.observe.probes.gradient_clipping import GradientClipping, LossScaling
from paceline.observe.probes.optimizer_steps import OptimizerSteps
from paceline.observe.probes.process_group import ProcessGroups
from paceline.observe.probes.replica_state import ReplicaState
from paceline.observe.probes.restored_state import RestoredState
from paceline.observe.probes.schedules import Schedules
from paceline.observe.probes.script_collectives import ScriptCollectives
from paceline.observe.probes.wrapped_models import WrappedModels
from paceline.observe.session import Probe, Session
from paceline.observe.sinks import RingSink, Sink
from paceline.records.observed_rank import RankStarted
from paceline.records.ring import RINGS_VARIABLE, SPAWNED_VARIABLE, RingWriter
from paceline.records.standing import stack_path, stack_signal

_BOOTSTRAP = Path(__file__).parent / "bootstrap"


def all_probes(
    spawn_environment: dict[str, str] | None = None, further: Callable[[ModelRegistry], Probe] | None = None
) -> list[Probe]:
    """One probe of each kind, in the order in which they hear of things, and a further one that shares their models."""
    models = ModelRegistry()
    groups = ProcessGroups(spawn_environment)
    collectives = ScriptCollectives(models)
    probes = [
        groups,
        ReplicaState(models),  # before those that it listens to: it sees the state before they count the step
        OptimizerSteps(models),
        WrappedModels(models),
        BackwardPasses(models),
        DataLoaders(models),
        collectives,
        GradientClipping(models),
        LossScaling(),
        Schedules(),
        RestoredState(models),
        Files(lambda: collectives.count),
    ]
    return probes if further is None else [*probes, further(models)]


class Attached:
    """The observer of this process.

    Attributes:
        session: with the probes.
    """

    def __init__(
        self,
        sink: Sink,
        rank: int,
        spawn_environment: dict[str, str] | None = None,
        further: Callable[[ModelRegistry], Probe] | None = None,
    ) -> None:
        probes = all_probes(spawn_environment, further)
        self.session = Session(sink, probes, rank=rank)
        self._groups = next(each for each in probes if isinstance(each, ProcessGroups))

    def begin(self, local_rank: int, world: int) -> None:
        """Observe from now on, and say so."""
        session = self.session
        session.arm()
        session.emit(
            RankStarted(
                rank=session.rank,
                local_rank=local_rank,
                world=world,
                pid=os.getpid(),
                host=socket.gethostname(),
                started_unix_s=time.time(),
                script=sys.argv[0] if getattr(sys, "argv", None) else "",
                directory=os.getcwd(),  # noqa: PTH109
                versions={
                    "python": platform.python_version(),
                    "torch": str(torch.__version__),
                    "paceline": __version__,
                },
                threads=torch.get_num_threads(),
                watched=session.armed,
            )
        )
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def group_made(self) -> None:
        """Say that there is a process group, where it was made before."""
        self.session.run(self._groups, self._groups.made)

    def script_ends(self) -> None:
        """Say that the script has ended, once."""
        self.session.run(self._groups, self._groups.script_ends)

    def _leave_to_parent(self) -> None:
        """A forked process is not this rank."""
        self.session.leave()


def answer_with_stacks(folder: Path) -> None:
    """Write the stacks of this process into its file whenever the launcher asks; forked processes have their own file.

    Args:
        folder: of the rings.
    """

    def register() -> None:
        try:
            file = stack_path(folder, os.getpid()).open("w")
            faulthandler.register(stack_signal(), file=file, all_threads=True, chain=False)
        except (OSError, RuntimeError, ValueError):  # no room, or the job has ended: a hang has no line of this process
            return
        _STACK_FILES.append(file)

    register()
    os.register_at_fork(after_in_child=register)


_STACK_FILES: list[IO[str]] = []
"""Open as long as the process."""


def attach_to_rank(further: Callable[[ModelRegistry], Probe] | None = None) -> Attached:
    """Observe this rank through a ring, as the launcher's environment says.

    Args:
        further: makes a probe beside those of `all_probes`.

    Raises:
        KeyError, ValueError: the environment is not that of a rank.
        OSError: the ring cannot be made, or another process observes this rank.
    """
    environment = os.environ
    rank = int(environment["RANK"])
    world = int(environment.get("WORLD_SIZE", "1"))
    return _attach(rank, int(environment["LOCAL_RANK"]), world, spawned=False, further=further)


def attach_to_spawned() -> None:
    """Observe this process as soon as it joins a process group, if it ever does: the script started it as a rank."""
    original = c10d.init_process_group

    @functools.wraps(original)
    def joins(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        c10d.init_process_group = dist.init_process_group = original
        try:
            rank = dist.get_rank()
            _attach(rank, rank, dist.get_world_size(), spawned=True).group_made()
        except Exception:  # noqa: BLE001  not the script's problem; the launcher reports the missing rank
            return

    c10d.init_process_group = dist.init_process_group = joins


def _attach(
    rank: int,
    local_rank: int,
    world: int,
    *,
    spawned: bool,
    further: Callable[[ModelRegistry], Probe] | None = None,
) -> Attached:
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) + 1
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    ring = RingWriter(Path(os.environ[RINGS_VARIABLE]), rank, attempt, spawned=spawned)
    path = os.pathsep.join(filter(None, [str(_BOOTSTRAP), os.environ.get("PYTHONPATH")]))
    spawn = {} if spawned else {"PYTHONPATH": path, SPAWNED_VARIABLE: "1"}
    attached = Attached(RingSink(ring, attempt if restarts else msgspec.UNSET), rank, spawn, further)
    attached.begin(local_rank, world)
    # Only an addition: whatever matters was written when it happened.
    atexit.register(attached.script_ends)
    return attached
