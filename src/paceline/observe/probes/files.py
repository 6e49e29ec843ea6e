"""Files that the script reads and writes, through Python's audit events and torch.save."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import serialization

from paceline.observe.call_site import place_of_io
from paceline.observe.session import Probe, Session
from paceline.records.observed_rank import FileTouched

_PER_PATH = 3
_PATHS = 2000
_IGNORED_PREFIXES = ("/dev/", "/proc/", "/sys/", "/etc/")
_IGNORED_PARTS = (
    "__pycache__",
    "site-packages",
    "dist-packages",
    "torchinductor",
    ".triton",
    "matplotlib",
    "fontconfig",
)
_EVENTS = frozenset({"open", "os.mkdir", "os.rename"})


class Files(Probe):
    """Listens to the interpreter's audit events, and patches torch.save and torch.load.

    Args:
        collectives: how many collectives this rank has called, to tell what happened before what on other ranks.
    """

    signal = "files"
    requires = ((sys, "addaudithook"), (torch, "save"), (torch, "load"))

    def __init__(self, collectives: Callable[[], int]) -> None:
        self._collectives = collectives
        self._seen: dict[tuple[str, str], int] = {}
        self._busy = False

    def arm(self, session: Session) -> None:
        """Listen, and patch torch.save, whose writer opens files without Python."""
        self._session = session
        for name, mode in (("save", "write"), ("load", "read")):
            session.patch(
                self, serialization, name, aliases=(torch,), before=functools.partial(self._torch, name, mode)
            )
        _add_hook()
        _armed.append(self)
        session.undo(self, lambda: _armed.remove(self))

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Take an event of `_EVENTS`."""
        if self._busy:
            return
        self._busy = True
        try:
            self._session.run(self, self._opened, event, args)
        finally:
            self._busy = False

    def _opened(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, text, flags = args
            if isinstance(path, int) or path is None:
                return
            self._note(path, _mode(text, flags), "open")
        elif event == "os.mkdir":
            self._note(args[0], "directory", "mkdir")
        else:
            self._note(args[1], "rename", "rename")

    def _torch(self, name: str, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = kwargs.get("f", args[1 if name == "save" else 0] if len(args) > (name == "save") else None)
        if isinstance(path, str | os.PathLike):
            self._busy = True
            try:
                self._note(path, mode, f"torch.{name}")
            finally:
                self._busy = False

    def _note(self, path: Any, mode: str, by: str) -> None:
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  resolves no links, reads nothing
        if name.startswith(_IGNORED_PREFIXES) or any(part in name for part in _IGNORED_PARTS):
            return
        if name.endswith((".py", ".pyc", ".so", ".zip")) or len(self._seen) >= _PATHS:
            return
        count = self._seen[name, mode] = self._seen.get((name, mode), 0) + 1
        if count > _PER_PATH:
            return
        place, imported = place_of_io()
        if imported or (place is None and mode == "read"):  # libraries read what they like
            return
        self._session.emit(
            FileTouched(
                path=name,
                mode=mode,
                by=by,
                step=self._session.progress.step,
                collectives=self._collectives(),
                place=place,
            )
        )


_armed: list[Files] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS:
        for each in tuple(_armed):
            each.audit(event, args)


@functools.cache
def _add_hook() -> None:
    """Once a process, since an audit hook cannot be removed; it does nothing while no probe is armed."""
    sys.addaudithook(_hook)


def _mode(text: Any, flags: Any) -> str:
    if isinstance(text, str):
        if "a" in text:
            return "append"
        return "write" if any(letter in text for letter in "wx+") else "read"
    flags = int(flags or 0)
    if flags & os.O_APPEND:
        return "append"
    return "write" if flags & (os.O_WRONLY | os.O_RDWR) else "read"
