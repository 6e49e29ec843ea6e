"""Digests of what ranks should hold in common: parameters, buffers, gradients, optimizer state; and of random states.

Parameters after step k are digested at the next consistent instant, when the script asks a loader for a batch or starts
the next forward or backward pass: the post-step hook of an optimizer fires before schedulers and averaging.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from paceline.observe.model_registry import ModelRegistry, is_shard, parameters_of
from paceline.observe.schedule import has_digests
from paceline.observe.session import Probe, Session, Topic
from paceline.observe.tensor_digest import hash_bytes, tensor_digest
from paceline.records.observed import Fingerprint

_SHARDED_OPTIMIZERS = ("ZeroRedundancyOptimizer", "DistributedOptimizer")
_GROWTH = 1.25
_INSTANTS = (Topic.BATCH_WANTED, Topic.FORWARD, Topic.BACKWARD_BEGINS)


class ReplicaState(Probe):
    """Listens to the step clock; patches nothing."""

    signal = "fingerprints"

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._pending: int | None = None
        self._leave: list[Callable[[], None]] = []
        self._last = 0
        self._started = False
        self._evaluations = 0

    def arm(self, session: Session) -> None:
        """Listen."""
        self._session = session
        session.listen(self, Topic.STEP_BEGINS, self._step_begins)
        session.listen(self, Topic.STEP_ENDS, self._step_ended)
        session.listen(self, Topic.EVALUATION_BEGINS, session.timed(self._evaluation))
        session.listen(self, Topic.PASS_ENDS, session.timed(self._pass_ended))
        session.listen(self, Topic.MODEL_WRAPPED, self._start_again)
        session.listen(self, Topic.SCRIPT_ENDS, session.timed(self._script_ends))

    def _step_begins(self, optimizer: Optimizer) -> None:
        step = self._session.progress.stepping
        if step > self._session.progress.step:  # else the step that is pending is not complete yet
            self._instant()
        if not self._started:
            self._started = True
            self._emit(0, "start", self._parameters() | self._buffers())
        if has_digests(step):
            self._session.timed(self._take_gradients)(step, optimizer)

    def _take_gradients(self, step: int, optimizer: Optimizer) -> None:
        self._emit(step, "gradients", self._gradients(optimizer))

    def _step_ended(self, _: Any) -> None:
        step = self._session.progress.step
        if has_digests(step) and step > self._last:
            self._pending = step
            if not self._leave:
                self._leave = [self._session.listen(self, topic, self._instant) for topic in _INSTANTS]

    def _instant(self, *_: Any) -> None:
        while self._leave:
            self._leave.pop()()
        if self._pending is not None:
            step, self._pending = self._pending, None
            self._session.timed(self._whole)(step, "state")

    def _pass_ended(self) -> None:
        """Also when an epoch ends, as long as that is rare enough."""
        step = self._session.progress.step
        self._instant()
        if step >= max(1, _GROWTH * self._last):
            self._whole(step, "state")

    def _evaluation(self) -> None:
        self._instant()
        self._evaluations += 1
        if has_digests(self._evaluations):
            self._emit(self._session.progress.step, "evaluation", self._parameters() | self._buffers())

    def _script_ends(self) -> None:
        self._instant()
        progress = self._session.progress
        if progress.step > self._last and not progress.restored_since_step:
            self._whole(progress.step, "end")

    def _whole(self, step: int, moment: str) -> None:
        self._last = step
        self._emit(step, moment, self._parameters() | self._buffers() | self._optimizers() | random_digests())

    def _start_again(self) -> None:
        self._pending, self._last, self._started = None, 0, False

    def _emit(self, step: int, moment: str, digests: dict[str, str]) -> None:
        if self._session.progress.uneven:
            return
        self._session.emit(Fingerprint(rank=self._session.rank, step=step, digests=digests, moment=moment))

    def _parameters(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for prefix, model in self._models.modules():
            found |= {
                f"parameter:{prefix}{name}": tensor_digest(each) for name, each in _whole(model.named_parameters())
            }
        return found

    def _buffers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for prefix, model in self._models.modules():
            found |= {f"buffer:{prefix}{name}": tensor_digest(each) for name, each in _whole(model.named_buffers())}
        return found

    def _gradients(self, optimizer: Optimizer) -> dict[str, str]:
        names = self._models.names()
        return {
            f"gradient:{names.get(id(each), f'#{number}')}": tensor_digest(each.grad)
            for number, each in enumerate(parameters_of(optimizer))
            if each.grad is not None and not is_shard(each) and each.grad.layout == torch.strided
        }

    def _optimizers(self) -> dict[str, str]:
        names, found = self._models.names(), {}
        for number, optimizer in self._models.optimizers():
            if type(optimizer).__name__ in _SHARDED_OPTIMIZERS:
                continue
            prefix = f"optimizer:{number}/" if number else "optimizer:"
            for index, parameter in enumerate(parameters_of(optimizer)):
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor) and not is_shard(value):
                        found[f"{prefix}{names.get(id(parameter), f'#{index}')}:{key}"] = tensor_digest(value)
        return found


def random_digests() -> dict[str, str]:
    """Digests of the generators of torch (CPU), Python and NumPy; no random number is drawn."""
    found = {
        "random:torch": tensor_digest(torch.get_rng_state()),
        "random:python": hash_bytes(repr(random.getstate()).encode()),
    }
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        found["random:numpy"] = hash_bytes(repr(numpy.get_state()[1:3]).encode() + numpy.get_state()[1].tobytes())
    return found


def _whole(named: Any) -> list[tuple[str, Tensor]]:
    """Tensors that this rank has as a whole."""
    return [(name, each) for name, each in named if not is_shard(each) and each.layout == torch.strided]
