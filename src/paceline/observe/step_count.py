"""Optimizer steps and wrapped models of a process: which models does DDP have, and do their bits agree step by step?"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from paceline.observe.fingerprint import SHOWN
from paceline.observe.watch import Watch
from paceline.parallel.digest import digest


class StepWatch(Watch):
    """Watches optimizers and DDP; see `Watch`. Nothing is changed.

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
    """

    def __init__(self, most: int = 256, *, inputs: bool = False) -> None:
        super().__init__()
        self.steps = 0
        self.digests: list[str] = []
        self.rates: list[float] = []
        self.wrapped: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.inputs: list[NDArray[Any]] = []
        self._most, self._keep_inputs = most, inputs

    def start(self) -> None:
        """Watch from now on."""
        handle = register_optimizer_step_post_hook(lambda optimizer, *_: self._guarded(self._stepped, optimizer))
        self._undo.append(handle.remove)
        self._spy(DistributedDataParallel, "__init__", after=lambda _, args: self.wrapped.append(args[0].module))
        if self._keep_inputs:
            self._spy(DistributedDataParallel, "forward", before=lambda _, args: self._note_inputs(args[1:]))

    def _note_inputs(self, inputs: tuple[Any, ...]) -> None:
        wanted = torch.is_grad_enabled() and len(self.inputs) < self._most
        if wanted and inputs and isinstance(inputs[0], torch.Tensor):
            self.inputs.append(inputs[0].detach().cpu().numpy().copy())

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self.steps += 1
        if not any(each is optimizer for each in self.optimizers):
            self.optimizers.append(optimizer)
        if len(self.digests) < self._most:
            self.rates.append(float(optimizer.param_groups[0]["lr"]))
            weights = [p for group in optimizer.param_groups for p in group["params"]]
            self.digests.append(digest(weights)[:SHOWN])
