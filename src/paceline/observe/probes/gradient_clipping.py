"""Gradient clipping: how often, and whether a backward pass follows or a GradScaler's scale is still on."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import utils
from torch.nn.utils import clip_grad

from paceline.observe.call_site import user_place
from paceline.observe.model_registry import ModelRegistry
from paceline.observe.probes.optimizer_steps import norms
from paceline.observe.session import Probe, Session

_NAMES = ("clip_grad_norm_", "clip_grad_value_")


class GradientClipping(Probe):
    """Patches torch.nn.utils.clip_grad_norm_ and clip_grad_value_."""

    signal = "clips"
    requires = tuple((clip_grad, name) for name in _NAMES)

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models

    def arm(self, session: Session) -> None:
        """Patch both under both names."""
        self._session = session
        for name in _NAMES:
            session.patch(self, clip_grad, name, aliases=(utils,), before=self._clips)

    def _clips(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        progress, window = self._session.progress, self._session.progress.window
        window.clips += 1
        window.clips_since_backward += 1
        if (progress.loss_scale or 1.0) != 1.0 and not window.unscaled:
            window.clips_while_scaled += 1
        if window.norms and window.clips == 1:
            given = args[0] if args else kwargs["parameters"]
            parameters = [given] if isinstance(given, torch.Tensor) else given
            if not isinstance(parameters, list | tuple):  # a generator can be read only once
                parameters = [each for _, model in self._models.modules() for each in model.parameters()]
            after, before = norms(window, list(parameters))
            window.clipped_norms = (after, before) if after and before else None
        if window.clip_place is None:
            window.clip_place = user_place()


class LossScaling(Probe):
    """Patches GradScaler: its scale, and when gradients are divided by it."""

    signal = "scaling"
    requires = ((torch.amp.GradScaler, "scale"), (torch.amp.GradScaler, "unscale_"))

    def arm(self, session: Session) -> None:
        """Patch the scaler."""
        self._session = session
        session.patch(self, torch.amp.GradScaler, "scale", after=lambda _, args, __: self._scaled(args[0]))
        session.patch(self, torch.amp.GradScaler, "unscale_", after=lambda *_: self._unscaled())

    def _scaled(self, scaler: torch.amp.GradScaler) -> None:
        progress = self._session.progress
        if not scaler.is_enabled():
            progress.loss_scale = None
            return
        scale = getattr(scaler, "_scale", None)
        if isinstance(scale, torch.Tensor) and scale.device.type == "cpu":  # reading it elsewhere would wait
            progress.loss_scale = float(scale)
        elif progress.loss_scale is None:
            progress.loss_scale = float("nan")

    def _unscaled(self) -> None:
        window = self._session.progress.window
        window.unscaled = True
        window.unscaled_by = self._session.progress.loss_scale or 1.0
