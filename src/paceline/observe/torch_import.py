"""Attaches the observer once the script has imported torch. Imports neither torch nor anything heavy itself."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from paceline.records.ring import RINGS_VARIABLE, SPAWNED_VARIABLE


class _TorchFinder:
    """Calls a function after the first import of torch. It finds nothing itself and leaves then, not before.

    Libraries ask `importlib.util.find_spec("torch")` whether there is torch, without importing it.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that the other finders have for torch, whose loader also calls the function."""
        if name != "torch" or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        vars(loader).pop("exec_module", None)  # ours, where a loader is asked for twice
        execute = loader.exec_module

        def execute_then_attach(module: Any) -> None:
            del loader.exec_module
            sys.meta_path.remove(self)
            execute(module)
            self._then()

        loader.exec_module = execute_then_attach
        return spec


def attach_after_torch() -> None:
    """Attach the observer to this process when it imports torch, or now if it has.

    A crash in compiled code leaves the stacks of Python on stderr, as with PYTHONFAULTHANDLER=1.
    """
    if not faulthandler.is_enabled() and sys.stderr is not None:
        faulthandler.enable()
    if "torch" in sys.modules:
        _attach()
    else:
        sys.meta_path.insert(0, _TorchFinder(_attach))


def _attach() -> None:
    """Whatever goes wrong here is not the script's problem: the launcher finds a note and reports it."""
    try:
        from paceline.observe.attach import answer_with_stacks, attach_to_rank, attach_to_spawned

        answer_with_stacks(Path(os.environ[RINGS_VARIABLE]))
        if os.environ.pop(SPAWNED_VARIABLE, ""):
            attach_to_spawned()
        else:
            attach_to_rank()
    except Exception as error:  # noqa: BLE001
        note = Path(os.environ.get(RINGS_VARIABLE, os.devnull)) / f"{os.environ.get('RANK', '0')}.not-observed"
        try:
            note.write_text(f"{type(error).__name__}: {error}")
        except OSError:
            return
