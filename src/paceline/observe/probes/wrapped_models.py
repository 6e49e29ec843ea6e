"""Models that DDP wraps: what it registered, which forward passes go through it, and what they are given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from paceline.observe.call_site import user_place
from paceline.observe.model_registry import ModelRegistry, Wrapped
from paceline.observe.session import Probe, Session, Topic
from paceline.observe.tensor_digest import DIGITS, sampled_digest
from paceline.records.observed import NotObserved
from paceline.records.observed_rank import InputSeen, ModelWrapped, TrainableChanged
from paceline.records.place import Place

_SHOWN = 20
_FIRST = 50
_TOGGLES = 100
_INPUTS_PER_STEP = 4


class WrappedModels(Probe):
    """Patches the constructor and `forward` of DistributedDataParallel."""

    signal = "wrappers"
    requires = ((DistributedDataParallel, "__init__"), (DistributedDataParallel, "forward"))

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._shown = 0
        self._toggles = 0
        self._toggle_place: Place | None = None
        self._reported: dict[int, tuple[int, int]] = {}

    def arm(self, session: Session) -> None:
        """Patch DDP."""
        self._session = session
        session.patch(self, DistributedDataParallel, "__init__", after=self._made)
        session.patch(self, DistributedDataParallel, "__setstate__", after=self._made)  # copy.deepcopy, pickle
        session.patch(self, DistributedDataParallel, "forward", before=self._forward)
        session.patch(self, nn.Module, "requires_grad_", before=lambda *_: self._toggled())
        session.patch(self, Join, "__enter__", before=lambda *_: self._join(uneven=True))
        session.patch(self, Join, "__exit__", after=lambda *_: self._join(uneven=False))
        session.listen(self, Topic.STEP_BEGINS, lambda _: self._step_begins())
        self._listeners = session.listeners(Topic.FORWARD)

    def _made(self, _: Any, args: tuple[Any, ...], __: Any) -> None:
        ddp: DistributedDataParallel = args[0]
        step = self._session.progress.step
        if not self._models.any_wrapped and step:
            self._session.announce(Topic.MODEL_WRAPPED)
        options = {
            "broadcast_buffers": bool(getattr(ddp, "broadcast_buffers", True)),
            "find_unused_parameters": bool(ddp.find_unused_parameters),
            "static_graph": bool(ddp.static_graph),
        }
        group = ddp.process_group.size() if ddp.process_group is not None else 0
        self._report(self._models.add(ddp, ddp.module), type(ddp).__name__, ddp.module, options, step, group)

    def _report_sharded(self) -> None:
        """Models that FSDP or DTensors shard are found when their optimizer first steps."""
        while self._shown < len(self._models.sharded):
            wrapped, sharder = self._models.sharded[self._shown]
            self._shown += 1
            model = wrapped.model()
            if model is not None:
                self._report(wrapped, sharder, model, {}, self._session.progress.step, dist.get_world_size())

    def _report(
        self, wrapped: Wrapped, wrapper: str, model: nn.Module, options: dict[str, Any], step: int, group: int
    ) -> None:
        named = list(model.named_parameters())
        order = hashlib.sha256(repr([(name, tuple(each.shape), str(each.dtype)) for name, each in named]).encode())
        modules = list(model.modules())
        synced = sum(isinstance(each, nn.SyncBatchNorm) for each in modules)
        norms = sum(isinstance(each, _BatchNorm) and each.track_running_stats for each in modules) - synced
        drops = sum(isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0 for each in modules)
        self._session.emit(
            ModelWrapped(
                number=wrapped.number,
                wrapper=wrapper,
                model=type(model).__name__,
                step=step,
                parameters=len(wrapped.registered),
                order=order.hexdigest()[:DIGITS],
                first_names=[name for name, _ in named[:_FIRST]],
                options=options,
                layers={"batch_norm": norms, "sync_batch_norm": synced, "dropout": drops},
                group=group,
                place=user_place(),
            )
        )

    def _toggled(self) -> None:
        """A GAN does that in each step: only the first calls are looked at."""
        if self._models.any_wrapped and self._toggles < _TOGGLES:
            self._toggles += 1
            self._toggle_place = user_place()

    def _join(self, *, uneven: bool) -> None:
        if uneven and not self._session.progress.uneven:
            why = "within Join ranks take different numbers of steps"
            self._session.emit(NotObserved(what="state of ranks at equal steps", why=why))
        self._session.progress.uneven = uneven

    def _forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ddp, progress = args[0], self._session.progress
        if not torch.is_grad_enabled():
            progress.wrapped_forwards += 1
            return
        if self._listeners:
            self._session.announce(Topic.FORWARD, ddp)
        window = progress.window
        if progress.recorded:
            window.forward_place = user_place()
            if len(window.synchronized) < _INPUTS_PER_STEP:
                self._note_input(ddp, args[1:], kwargs)
        window.synchronized += (bool(ddp.require_backward_grad_sync),)

    def _note_input(self, ddp: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = [each for each in _tensors((args, kwargs)) if each.dim() and each.numel()]
        if not tensors:
            return
        progress, wrapped = self._session.progress, self._models.find(ddp)
        position = progress.position or (None, None, None)
        self._session.emit(
            InputSeen(
                step=progress.step + 1,
                forward=len(progress.window.synchronized),
                rows=tensors[0].shape[0],
                shape=list(tensors[0].shape),
                digest="".join(sampled_digest(each) for each in tensors[:4]),
                wrapper=wrapped.number if wrapped else None,
                loader=position[0],
                number=position[1],
                batch=position[2],
            )
        )

    def _step_begins(self) -> None:
        progress = self._session.progress
        if not progress.recorded:
            return
        self._report_sharded()
        for wrapped in self._models.wrapped():
            model = wrapped.model()
            if model is None or wrapped.sharded:
                continue
            added, removed = _changes(wrapped, model)
            sizes = (len(added), len(removed))
            if sizes != self._reported.get(wrapped.number, (0, 0)):
                self._reported[wrapped.number] = sizes
                self._session.emit(
                    TrainableChanged(
                        number=wrapped.number,
                        step=progress.step,
                        added=added[:_SHOWN],
                        removed=removed[:_SHOWN],
                        place=self._toggle_place,
                    )
                )


def _changes(wrapped: Wrapped, model: nn.Module) -> tuple[list[str], list[str]]:
    named = dict(model.named_parameters())
    added = [name for name, each in named.items() if each.requires_grad and id(each) not in wrapped.registered]
    now = {id(each) for each in named.values()}
    frozen = [name for name, each in named.items() if not each.requires_grad and id(each) in wrapped.registered]
    return added, [*frozen, *["?"] * len(wrapped.registered - now)]


def _tensors(value: Any, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth < 4:
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for each in items:
            yield from _tensors(each, depth + 1)
