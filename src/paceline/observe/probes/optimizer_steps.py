"""The step clock: optimizer steps, their learning rates, and what happened between them.

A step ends the round in which each optimizer steps at most once: the two optimizers of a GAN share a step, one that
steps five times as often counts alone, and a step within another one, of an inner optimizer or of the base class, is
part of it.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers

from paceline.observe.call_site import user_place
from paceline.observe.model_registry import ModelRegistry, parameters_of
from paceline.observe.schedule import has_digests, is_recorded, next_recorded
from paceline.observe.session import Probe, Session, StepWindow, Topic
from paceline.records.observed import StepTiming
from paceline.records.observed_rank import ObservedStep, OptimizerSeen
from paceline.records.place import Place

_SHOWN = 20
_TO_STEP = 2
"""Frames from a guarded hook to the function of torch's that calls it."""
_EXTRA = 200
"""Steps that are recorded only because their pattern changed, at most."""


class OptimizerSteps(Probe):
    """Counts optimizer steps through torch's global hooks."""

    signal = "steps"
    requires = (
        (optimizers, "register_optimizer_step_pre_hook"),
        (optimizers, "register_optimizer_step_post_hook"),
    )

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._round: tuple[int, ...] = ()
        self._depth = 0
        self._next = 1  # step that is recorded
        self._stepped: Callable[[], Optimizer | None] = lambda: None  # the last one
        self._sets: dict[int, tuple[int, int]] = {}
        self._patterns: dict[int, Any] = {}
        self._extra = 0
        self._places: weakref.WeakKeyDictionary[Optimizer, Place | None] = weakref.WeakKeyDictionary()
        self._number = 0
        self._leave_forwards: Callable[[], None] = lambda: None
        self._backwards = 0
        self._sequence: int | None = None
        self._first_s: float | None = None
        self._last_s = 0.0

    def arm(self, session: Session) -> None:
        """Register hooks that fire for each optimizer."""
        self._session = session
        session.patch(self, Optimizer, "__init__", after=lambda _, args, __: self._made(args[0]))
        session.listen(self, Topic.MODEL_WRAPPED, self._start_again)
        if not self._models.any_optimizer:
            self._leave_forwards = session.listen(self, Topic.FORWARD, self._without_optimizer)
        session.undo(self, optimizers.register_optimizer_step_pre_hook(session.guard(self, self._begins)).remove)
        session.undo(self, optimizers.register_optimizer_step_post_hook(session.guard(self, self._ended)).remove)

    def _begins(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            self._depth = _steps_on_stack(sys._getframe(_TO_STEP))
            if self._depth > 1:
                return
        if self._stepped() is not optimizer:
            self._number, self._stepped = self._models.add_optimizer(optimizer), weakref.ref(optimizer)
        number, session, progress = self._number, self._session, self._session.progress
        if self._round and number not in self._round:  # joins the step that has just been counted
            step, recorded = progress.step, is_recorded(progress.step)
        else:
            step, recorded = progress.step + 1, progress.recorded
        if recorded:
            progress.stepping = step
            if self._first_s is None:
                self._first_s = self._last_s = time.perf_counter()
            session.announce(Topic.STEP_BEGINS, optimizer)
            self._note_parameters(optimizer, number, step)
        elif self._extra >= _EXTRA:
            return
        window = progress.window
        reductions = self._reductions() if progress.recorded else None
        pattern = (  # what makes a step worth an event of its own when it changes
            window.synchronized,
            window.backwards,
            window.backwards_unwrapped,
            window.own_reductions,
            window.own_averages,
            window.clips_before_backward,
            window.clips_while_scaled,
        )
        if not recorded and self._patterns.get(number) == pattern:
            return
        self._extra += not recorded
        self._patterns[number] = pattern
        session.emit(self._event(optimizer, number, step, window, reductions))

    def _made(self, optimizer: Optimizer) -> None:
        self._models.note_optimizer()
        self._leave_forwards()
        self._places[optimizer] = user_place()

    def _without_optimizer(self, _: Any) -> None:
        """Without an optimizer of torch's, a step ends when the next forward pass begins."""
        session, progress = self._session, self._session.progress
        if progress.backwards == self._backwards:
            return
        self._backwards = progress.backwards
        if progress.recorded:
            session.emit(self._event(None, -1, progress.step + 1, progress.window, self._reductions()))
        recorded = progress.recorded
        self._advance(progress.step + 1, recorded=recorded)
        if recorded:
            session.announce(Topic.STEP_ENDS, None)
        progress.window = StepWindow()

    def _start_again(self) -> None:
        """Some scripts train on one rank before they wrap the model: ranks count from the same step on."""
        self._round = ()
        self._patterns.clear()
        self._sets.clear()
        self._first_s = None
        self._models.forget_optimizers()
        self._next, self._stepped = 1, lambda: None
        progress = self._session.progress
        progress.step, progress.recorded, progress.digests, progress.window = 0, True, True, StepWindow()
        progress.loss_scale = None

    def _event(
        self, optimizer: Optimizer | None, number: int, step: int, window: StepWindow, reductions: int | None
    ) -> ObservedStep:
        position = self._session.progress.position or (None, None, None)
        begun_s, done_s, ended_s = window.backward_times or (None, None, None)
        after = before = None
        if window.clipped_norms is not None:
            after, before = window.clipped_norms
        elif window.norms and has_digests(step) and optimizer is not None:
            after, before = norms(window, parameters_of(optimizer))
        return ObservedStep(
            step=step,
            optimizer=number,
            lr=[float(group["lr"]) for group in (optimizer.param_groups if optimizer else ()) if "lr" in group],
            forwards=len(window.synchronized),
            synchronized=list(window.synchronized),
            backwards=window.backwards,
            backwards_unwrapped=window.backwards_unwrapped,
            reductions=reductions,
            own_reductions=window.own_reductions,
            own_averages=window.own_averages,
            clips=window.clips,
            clips_before_backward=window.clips_before_backward,
            clips_while_scaled=window.clips_while_scaled,
            scheduler_steps=window.scheduler_steps,
            loss=window.loss,
            loss_scale=self._session.progress.loss_scale,
            norm_after_backward=after,
            norm_at_step=before,
            norm_before_clip=window.clipped_norms is not None,
            unscaled_by=window.unscaled_by,
            backward_begun_s=begun_s,
            backward_done_s=done_s,
            backward_ended_s=ended_s,
            loader=position[0],
            number=position[1],
            batch=position[2],
            forward_place=window.forward_place,
            backward_place=window.backward_place,
            step_place=user_place(),
            clip_place=window.clip_place,
            reduce_place=window.reduce_place,
            scheduler_place=window.scheduler_place,
            reentrant_place=window.reentrant_place,
        )

    def _reductions(self) -> int | None:
        """Collectives of the default group since the last call; DDP's own count as well."""
        if not dist.is_initialized():
            return None
        try:
            sequence = int(dist.group.WORLD._get_sequence_number_for_group())  # type: ignore[union-attr]
        except (AttributeError, RuntimeError):
            return None
        since = sequence - (self._sequence or 0)
        self._sequence = sequence
        return since

    def _note_parameters(self, optimizer: Optimizer, number: int, step: int) -> None:
        """Say what an optimizer holds at its first step, and when that has changed."""
        own = parameters_of(optimizer)
        missing = sum(each.grad is None for each in own)
        if self._sets.get(number) == (len(own), missing) and step != 2:  # at step 2 all optimizers are known
            return
        self._sets[number] = (len(own), missing)
        names, registered = self._models.names(), self._models.registered()
        outside = [each for each in own if id(each) not in registered and each.requires_grad]
        held = {id(each) for _, known in self._models.optimizers() for each in parameters_of(known)}
        loose = [
            names.get(id(each), "?")
            for _, model in self._models.modules()
            for each in model.parameters()
            if each.grad is not None and id(each) not in held
        ]
        self._session.emit(
            OptimizerSeen(
                number=number,
                kind=type(optimizer).__name__,
                step=step,
                parameters=len(own),
                wrapped=sum(id(each) in registered for each in own),
                outside=[names.get(id(each), "?") for each in outside[:_SHOWN]],
                without_gradient=missing,
                wrapped_with_gradient_elsewhere=loose[:_SHOWN],
                place=self._places.get(optimizer) or user_place(),
            )
        )

    def _ended(self, optimizer: Optimizer, *_: Any) -> None:
        if self._depth > 1:
            self._depth = _steps_on_stack(sys._getframe(_TO_STEP))
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        number, progress, recorded = self._number, self._session.progress, self._session.progress.recorded
        if number in self._round or not self._round:
            self._round = (number,)
            self._advance(progress.step + 1, recorded=recorded)
        else:
            self._round += (number,)
            recorded = is_recorded(progress.step)
        progress.restored_since_step = False
        if recorded:
            self._session.announce(Topic.STEP_ENDS, optimizer)
        progress.window = StepWindow()

    def _advance(self, step: int, *, recorded: bool) -> None:
        """Step `step` is done."""
        session, progress = self._session, self._session.progress
        progress.step = step
        session.sink.beat(step, progress.samples)
        if recorded:
            self._next = next_recorded(step)
        progress.recorded = step + 1 == self._next
        if not (recorded or progress.recorded):
            return
        progress.digests = has_digests(step + 1)
        now = time.perf_counter()
        if recorded and self._first_s is not None:
            session.emit(
                StepTiming(
                    step=step,
                    elapsed_s=now - self._first_s,
                    duration_s=now - self._last_s if step > 1 else None,
                    source="hooks",
                    sampled=True,
                )
            )
        self._last_s = now
        if not recorded:
            self._reductions()  # counts those of the next step from here


def _steps_on_stack(frame: FrameType) -> int:
    """How many steps are under way, those included that one of them takes inside. `frame` is that of the innermost.

    Hooks are not called behind a step that raised an exception, so begun and ended steps cannot be counted against each
    other once one is not alone.
    """
    found, at = 0, cast(FrameType | None, frame)
    while at is not None:
        found += at.f_code is frame.f_code
        at = at.f_back
    return found


def norms(window: StepWindow, parameters: list[torch.Tensor]) -> tuple[float | None, float | None]:
    """Norm of the gradients of some parameters after the last backward pass, and now."""
    squares = window.norms or {}
    after = _norm([squares[id(each)] for each in parameters if id(each) in squares])
    return after, _norm([gradient_square(each.grad) for each in parameters if each.grad is not None])


def gradient_squares(models: ModelRegistry) -> dict[int, torch.Tensor]:
    """Squared norms of the gradients of all known models, by id of the parameter."""
    parameters = [each for _, model in models.modules() for each in model.parameters()]
    return {id(each): gradient_square(each.grad) for each in parameters if each.grad is not None}


def gradient_square(gradient: torch.Tensor) -> torch.Tensor:
    """Squared norm of a gradient, in float32 or wider, on its device."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    wide = torch.promote_types(values.dtype, torch.float32)
    square: torch.Tensor = torch.linalg.vector_norm(values.detach(), dtype=wide).square()
    return square


def _norm(squares: list[torch.Tensor]) -> float | None:
    if not squares:
        return None
    return float(torch.stack([each.to("cpu", torch.float64) for each in squares]).sum().sqrt())
