"""The default process group: when it is made, how large it is, when it is destroyed; and scripts that start ranks."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from paceline.observe.call_site import user_place
from paceline.observe.session import Probe, Session, Topic
from paceline.records.observed import NotObserved
from paceline.records.observed_rank import GroupMade, ScriptEnded

_SPAWN = importlib.import_module("torch.multiprocessing.spawn")  # torch.multiprocessing.spawn itself is a function
SPAWNED_VARIABLE = "PACELINE_SPAWNED"
"""Set for processes that torch.multiprocessing starts in a rank: they are observed once they join a process group."""


class ProcessGroups(Probe):
    """Patches init_process_group, destroy_process_group and torch.multiprocessing's start of processes.

    Args:
        environment: variables for processes that the script starts as ranks of its own.
    """

    signal = "groups"
    requires = ((c10d, "init_process_group"), (c10d, "destroy_process_group"))

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._environment = environment or {}
        self._ended = False

    def arm(self, session: Session) -> None:
        """Patch the functions under each name that they have."""
        self._session = session
        patch_everywhere(session, self, "init_process_group", after=lambda *_: self._made())
        patch_everywhere(session, self, "destroy_process_group", before=lambda *_: self.script_ends())
        self._patch_spawn()

    def _patch_spawn(self) -> None:
        hooks = {"before": lambda *_: self._spawns(), "after": lambda *_: self._spawned()}
        original = torch.multiprocessing.start_processes
        self._session.patch(self, _SPAWN, "start_processes", **hooks)
        torch.multiprocessing.start_processes = vars(_SPAWN)["start_processes"]
        self._session.undo(self, lambda: setattr(torch.multiprocessing, "start_processes", original))

    def _made(self) -> None:
        self._session.emit(
            GroupMade(rank=dist.get_rank(), world=dist.get_world_size(), backend=dist.get_backend(), place=user_place())
        )

    def script_ends(self) -> None:
        """Say how the script ended, once."""
        session, progress = self._session, self._session.progress
        if self._ended or (dist.is_initialized() and dist.get_world_size() == 0):
            return
        self._ended = True
        session.announce(Topic.SCRIPT_ENDS)
        session.emit(
            ScriptEnded(
                step=progress.step,
                scheduler_steps=progress.scheduler_steps,
                observer_s=session.spent_s,
                elapsed_s=time.monotonic() - session.started_s,
                samples=progress.samples,
            )
        )

    def _spawns(self) -> None:
        why = "the script starts its own ranks with torch.multiprocessing"
        self._session.emit(NotObserved(what="this process's training", why=why))
        os.environ.update(self._environment)

    def _spawned(self) -> None:
        for name in self._environment:
            os.environ.pop(name, None)


def patch_everywhere(session: Session, probe: Probe, name: str, **hooks: Any) -> None:
    """Patch a function of torch.distributed under both names that scripts use."""
    session.patch(probe, c10d, name, **hooks)
    ours, original = getattr(c10d, name), getattr(dist, name)
    if original is not ours:
        setattr(dist, name, ours)
        session.undo(probe, lambda: setattr(dist, name, original))
