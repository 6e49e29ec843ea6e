"""Optimizer steps and wrapped models of a process: which models does DDP have, and do their bits agree step by step?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from paceline.observe.fingerprint import SHOWN
from paceline.parallel.digest import digest


class StepWatch:
    """Watches from `start` to `stop`, or as a context manager. Nothing is changed.

    Args:
        most: digests are taken of so many steps at most: they read every weight.
        inputs: also keep what is given to wrapped models in training, of so many steps at most.

    Attributes:
        steps: optimizer steps that were seen.
        digests: of the weights that the optimizer of each step has, after the step.
        rates: learning rate of the first group in each step.
        wrapped: the models inside DistributedDataParallel, in the order in which they were wrapped.
        optimizers: in the order of their first step.
        inputs: the first tensor given to a wrapped model in each forward with gradients, where that was asked for.
        trouble: why watching ended early; empty while all is well.
    """

    def __init__(self, most: int = 256, *, inputs: bool = False) -> None:
        self.steps = 0
        self.digests: list[str] = []
        self.rates: list[float] = []
        self.wrapped: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.inputs: list[NDArray[Any]] = []
        self.trouble = ""
        self._most, self._keep_inputs = most, inputs
        self._handle: Any = None
        self._wrap: Callable[..., None] | None = None
        self._forward: Callable[..., Any] | None = None

    def __enter__(self) -> StepWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Watch from now on."""
        self._handle = register_optimizer_step_post_hook(self._stepped)
        self._wrap = wrap = DistributedDataParallel.__init__

        def watched(this: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            wrap(this, module, *args, **kwargs)
            self.wrapped.append(module)

        DistributedDataParallel.__init__ = watched  # type: ignore[assignment, method-assign]
        if self._keep_inputs:
            forward: Callable[..., Any] = DistributedDataParallel.forward
            self._forward = forward

            def given(this: Any, *inputs: Any, **kwargs: Any) -> Any:
                self._note_inputs(inputs)
                return forward(this, *inputs, **kwargs)

            DistributedDataParallel.forward = given  # type: ignore[assignment, method-assign]

    def stop(self) -> None:
        """Watch no more. What was seen stays."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if self._wrap is not None:
            DistributedDataParallel.__init__ = self._wrap  # type: ignore[method-assign]
            self._wrap = None
        if self._forward is not None:
            DistributedDataParallel.forward = self._forward  # type: ignore[method-assign]
            self._forward = None

    def _note_inputs(self, inputs: tuple[Any, ...]) -> None:
        wanted = torch.is_grad_enabled() and len(self.inputs) < self._most
        if wanted and inputs and isinstance(inputs[0], torch.Tensor):
            self.inputs.append(inputs[0].detach().cpu().numpy().copy())

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        try:
            self.steps += 1
            if not any(each is optimizer for each in self.optimizers):
                self.optimizers.append(optimizer)
            if len(self.digests) < self._most:
                self.rates.append(float(optimizer.param_groups[0]["lr"]))
                weights = [p for group in optimizer.param_groups for p in group["params"]]
                self.digests.append(digest(weights)[:SHOWN])
        except Exception as error:  # noqa: BLE001  the watched program must not feel it
            self.trouble = f"{type(error).__name__}: {error}"
