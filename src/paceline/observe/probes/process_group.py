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
from paceline.records.ring import ENDED

_SPAWN = importlib.import_module("torch.multiprocessing.spawn")  # torch.multiprocessing.spawn itself is a function


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
        self._before: dict[str, str | None] = {}

    def arm(self, session: Session) -> None:
        """Patch the functions under each name that they have."""
        self._session = session
        session.patch(self, c10d, "init_process_group", aliases=(dist,), after=lambda *_: self.made())
        session.patch(self, c10d, "destroy_process_group", aliases=(dist,), before=self._destroys)
        session.patch(
            self,
            _SPAWN,
            "start_processes",
            aliases=(torch.multiprocessing,),
            before=lambda *_: self._spawns(),
            after=lambda *_: self._spawned(),
            raised=lambda *_: self._spawned(),
        )

    def made(self) -> None:
        """Say that there is a process group."""
        self._session.progress.groups += 1
        self._session.emit(
            GroupMade(rank=dist.get_rank(), world=dist.get_world_size(), backend=dist.get_backend(), place=user_place())
        )

    def _destroys(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        group = args[0] if args else kwargs.get("group")
        if group is None or group is dist.group.WORLD:  # a script may go on without one of its other groups
            self.script_ends()

    def script_ends(self) -> None:
        """Say how the script ended, once."""
        session, progress = self._session, self._session.progress
        if self._ended or (dist.is_initialized() and dist.get_world_size() == 0):
            return
        self._ended = True
        session.sink.counters[ENDED] = 1
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
        why = "the script starts its own ranks with torch.multiprocessing; they are observed once they join a group"
        self._session.emit(NotObserved(what="the launched process itself", why=why))
        self._before = {name: os.environ.get(name) for name in self._environment}
        os.environ.update(self._environment)

    def _spawned(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
