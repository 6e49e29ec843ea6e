"""Backward passes: which ones a wrapped forward pass precedes, what they start from, and gradients taken by hand."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from math import isfinite
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import Tensor, autograd, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from paceline.observe.call_site import place_around, user_place
from paceline.observe.model_registry import ModelRegistry
from paceline.observe.probes.optimizer_steps import gradient_squares
from paceline.observe.session import Probe, Session, Topic
from paceline.records.observed_rank import GradientTaken, NonFinite

_TAKEN = 3


class BackwardPasses(Probe):
    """Patches the function through which torch starts the autograd engine."""

    signal = "backward"
    requires = ((autograd, "_engine_run_backward"), (torch._C, "_current_graph_task_id"))

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._taken = 0
        self._non_finite = False
        self._searched = False
        self._always_read = False
        self._clock: BackwardClock | None = None

    def arm(self, session: Session) -> None:
        """Patch the engine's entry.

        Raises:
            RuntimeError: `torch.autograd.backward` does not call it.
        """
        self._session = session
        if "_engine_run_backward" not in autograd.backward.__code__.co_names:
            raise RuntimeError("torch.autograd.backward does not call _engine_run_backward")
        session.patch(
            self,
            autograd,
            "_engine_run_backward",
            before=self._begins,
            raised=self._failed,
        )
        self._listeners = session.listeners(Topic.BACKWARD_BEGINS)
        session.patch(self, checkpointing, "checkpoint", before=self._checkpoints)

    def _begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None] | None:
        if not kwargs.get("accumulate_grad", True):
            self._note_taken(args[4] if len(args) > 4 else ())
            return None
        if in_backward():  # reentrant checkpointing
            return None
        if self._listeners:
            self._session.announce(Topic.BACKWARD_BEGINS)
        progress = self._session.progress
        window = progress.window
        progress.backwards += 1
        window.backwards += 1
        forwards = len(window.synchronized)
        if window.forwards_before == forwards and self._models.any_wrapped and not _compiles():
            window.backwards_unwrapped += 1
            self._look_for_forward()
        window.forwards_before = forwards
        if window.clips_since_backward:
            window.clips_before_backward += window.clips_since_backward
            window.clips_since_backward = 0
        recorded = progress.recorded
        if recorded:
            window.backward_place = user_place()
        self._look_at_loss(args[0], recorded=recorded)
        if not recorded:
            return None
        self._clock = BackwardClock(args[0])
        return self._returned

    def _look_for_forward(self) -> None:
        """Find the line that calls the model without its wrapper: a hook on all modules, until it was called once.

        It is set only after such a backward pass, so a correct script never has it.
        """
        if self._searched:
            return
        self._searched = True
        inner = {id(each) for _, model in self._models.modules() for each in model.modules()}
        session = self._session

        def called(module: nn.Module, _: Any) -> None:
            if torch.compiler.is_compiling():
                return
            window = session.progress.window
            since = len(window.synchronized) - window.forwards_before
            if id(module) in inner and torch.is_grad_enabled() and not since:
                session.run(self, lambda: setattr(window, "forward_place", place_around(nn.Module)))
                handle.remove()

        handle = register_module_forward_pre_hook(called)
        session.undo(self, handle.remove)

    def _checkpoints(self, _: Any, kwargs: dict[str, Any]) -> None:
        window = self._session.progress.window
        if self._session.progress.recorded and kwargs.get("use_reentrant") is not False and not window.reentrant_place:
            window.reentrant_place = user_place()

    def _look_at_loss(self, losses: Any, *, recorded: bool) -> None:
        """On an accelerator only for recorded steps, since reading a value waits for it."""
        if recorded:
            loss = losses[0] if isinstance(losses, list | tuple) and losses else None
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                self._always_read = False
                return
            self._always_read = loss.is_cpu
        elif not self._always_read:
            return
        try:
            value = losses[0].item()
        except (AttributeError, RuntimeError):  # no single number, other than at the recorded step before
            return
        progress = self._session.progress
        finite = isfinite(value)
        progress.window.loss = value if finite else None
        if not finite and not self._non_finite:
            self._non_finite = True
            self._session.emit(NonFinite(what="loss", step=progress.step + 1, value=str(value), place=user_place()))

    def _returned(self) -> None:
        progress = self._session.progress
        if self._clock is not None:
            progress.window.backward_times = self._clock.stop()
        if progress.digests:
            progress.window.norms = gradient_squares(self._models)

    def _failed(self, _: BaseException, __: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A backward pass raised an exception, which the script may catch."""
        if kwargs.get("accumulate_grad", True) and not in_backward():
            self._session.progress.backwards -= 1
            if self._clock is not None:
                self._clock.stop()

    def _note_taken(self, inputs: Any) -> None:
        if self._taken >= _TAKEN and self._models.any_optimizer:
            return
        registered = self._models.registered()
        leaves = sum(isinstance(each, Tensor) and id(each) in registered for each in inputs)
        if not leaves:
            return
        self._session.progress.backwards += not self._models.any_optimizer  # a script that takes its own steps
        self._taken += 1
        if self._taken <= _TAKEN:
            step = self._session.progress.step + 1
            self._session.emit(GradientTaken(step=step, parameters=leaves, place=user_place()))


class BackwardClock:
    """Times one backward pass: when it began, when this rank had done its own part, and when DDP had all gradients.

    DDP waits for other ranks in a callback at the end of the pass, which it queues with its last gradient. The hook
    on the node of the loss runs before all others, so the callback that it queues is called before DDP's. The hook
    returns nothing, and neither changes a gradient.

    Args:
        losses: the roots of the pass.
    """

    def __init__(self, losses: Any) -> None:
        self._ready_s: float | None = None
        self._handle: Any = None
        loss = losses[0] if isinstance(losses, list | tuple) and losses else None
        node = getattr(loss, "grad_fn", None)
        if node is not None and not _compiled_autograd():
            with contextlib.suppress(Exception):  # then there are no times, and the rest of the pass is observed
                self._handle = node.register_prehook(self._first)
        self._began_s = time.monotonic()

    def stop(self) -> tuple[float, float, float] | None:
        """The three times on this machine's monotonic clock; None if the middle one is not known."""
        ended_s = time.monotonic()
        if self._handle is not None:
            self._handle.remove()
        return None if self._ready_s is None else (self._began_s, self._ready_s, ended_s)

    def _first(self, _: Any) -> None:
        with contextlib.suppress(Exception):  # then it is not known
            autograd.Variable._execution_engine.queue_callback(self._done)

    def _done(self) -> None:
        self._ready_s = time.monotonic()


def in_backward() -> bool:
    """True within a backward pass of the autograd engine."""
    return torch._C._current_graph_task_id() != -1


def _compiled_autograd() -> bool:
    """True if backward passes are compiled, hooks included."""
    module: Any = sys.modules.get("torch._dynamo.compiled_autograd")
    return module is not None and bool(getattr(module, "compiled_autograd_enabled", True))


def _compiles() -> bool:
    """True if torch.compile has compiled anything: forward passes within compiled code are not seen."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters["stats"])
