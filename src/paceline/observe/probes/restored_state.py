"""State that is loaded or converted: `load_state_dict`, and `.cpu()` or `.half()` after wrapping."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from paceline.observe.call_site import user_place
from paceline.observe.model_registry import ModelRegistry
from paceline.observe.session import Probe, Session
from paceline.records.observed_rank import ModelMoved, StateRestored

_MOVES = 20


class RestoredState(Probe):
    """Patches `load_state_dict` and the function behind all conversions of modules."""

    signal = "restores"
    requires = ((nn.Module, "load_state_dict"), (Optimizer, "load_state_dict"), (nn.Module, "_apply"))

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._depth = 0
        self._before: list[Any] = []
        self._moves = 0

    def arm(self, session: Session) -> None:
        """Patch the classes."""
        self._session = session
        session.patch(self, nn.Module, "load_state_dict", after=lambda _, args, __: self._loaded(args[0], "model"))
        session.patch(self, Optimizer, "load_state_dict", after=lambda _, args, __: self._loaded(args[0], "optimizer"))
        session.patch(
            self, LRScheduler, "load_state_dict", after=lambda _, args, __: self._loaded(args[0], "scheduler")
        )
        session.patch(
            self,
            nn.Module,
            "_apply",
            before=lambda args, _: self._converts(args[0]),
            after=lambda _, args, __: self._converted(args[0]),
            raised=lambda *_: self._left(),
        )

    def _loaded(self, owner: Any, what: str) -> None:
        progress = self._session.progress
        if what == "model":
            registered = self._models.registered()
            wrapped = any(id(each) in registered for each in owner.parameters())
            progress.restored_since_step = True
        else:
            wrapped = self._models.any_wrapped
        self._session.emit(
            StateRestored(
                what=what, name=type(owner).__name__, step=progress.step, after_wrap=wrapped, place=user_place()
            )
        )

    def _converts(self, module: nn.Module) -> None:
        self._depth += 1
        if self._depth == 1 and self._models.any_wrapped:
            self._before = self._facts(module)

    def _converted(self, module: nn.Module) -> None:
        self._left()
        if self._depth or not self._before or self._moves >= _MOVES:
            return
        before, self._before = self._before, []
        registered = self._models.registered()
        after = self._facts(module)
        replaced = sum(each[0] in registered for each in before) - sum(each[0] in registered for each in after)
        converted = sum(a[1:] != b[1:] for a, b in zip(before, after, strict=False) if a[0] in registered)
        if replaced or converted:
            self._moves += 1
            number = next((each.number for each in self._models.wrapped()), 0)
            step = self._session.progress.step
            self._session.emit(
                ModelMoved(number=number, step=step, replaced=replaced, converted=converted, place=user_place())
            )

    def _left(self) -> None:
        self._depth = max(0, self._depth - 1)

    @staticmethod
    def _facts(module: nn.Module) -> list[tuple[int, torch.dtype, torch.device]]:
        return [(id(each), each.dtype, each.device) for each in module.parameters()]
