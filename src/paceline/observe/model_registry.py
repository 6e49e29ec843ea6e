"""The models of a process: which are wrapped, what their tensors are called, and which parameters nobody wraps.

Holds models weakly: what the script drops is dropped.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

_SHARDERS = ("FullyShardedDataParallel", "FSDPModule")


@dataclass
class Wrapped:
    """A model that DDP or another wrapper synchronizes.

    Attributes:
        number: 0 for the first of this process.
        wrapper: the wrapping module; the model itself where a function wrapped it (`fully_shard`).
        model: inside.
        registered: ids of the parameters that required gradients when it was wrapped.
        sharded: ranks hold parts of its parameters.
    """

    number: int
    wrapper: weakref.ref[nn.Module]
    model: weakref.ref[nn.Module]
    registered: frozenset[int]
    sharded: bool = False


class ModelRegistry:
    """Knows wrapped models as they are made, and finds others when an optimizer holds their parameters."""

    def __init__(self) -> None:
        self._wrapped: list[Wrapped] = []
        self._roots: list[weakref.ref[nn.Module]] = []
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._seen_optimizers = 0
        self.any_wrapped = False
        """Whether DDP ever had a model, or another wrapper whose forward passes are seen."""
        self.sharded: list[tuple[Wrapped, str]] = []
        """Models that are sharded over ranks, and by what, in the order in which they were found."""
        self.any_optimizer = False
        """Whether one of torch's optimizers was ever made."""

    def note_optimizer(self) -> None:
        """An optimizer was made."""
        self.any_optimizer = True

    def add(self, wrapper: nn.Module, model: nn.Module, *, sharded: bool = False) -> Wrapped:
        """Note a model that was just wrapped."""
        registered = frozenset(id(each) for each in model.parameters() if each.requires_grad)
        wrapped = Wrapped(len(self._wrapped), weakref.ref(wrapper), weakref.ref(model), registered, sharded)
        self._wrapped.append(wrapped)
        self.any_wrapped |= not sharded
        return wrapped

    def wrapped(self) -> Iterator[Wrapped]:
        """Models whose wrapper still exists."""
        return (each for each in self._wrapped if each.wrapper() is not None)

    def find(self, wrapper: nn.Module) -> Wrapped | None:
        """Return the entry of a wrapping module."""
        return next((each for each in self._wrapped if each.wrapper() is wrapper), None)

    def add_optimizer(self, optimizer: Optimizer) -> int:
        """The number of an optimizer, 0 for the first that stepped."""
        number = self._optimizers.get(optimizer)
        if number is None:
            number = self._optimizers[optimizer] = self._seen_optimizers
            self._seen_optimizers += 1
            self._look_for_roots(parameters_of(optimizer))
        return number

    def optimizers(self) -> list[tuple[int, Optimizer]]:
        """Optimizers that have stepped and still exist, by number."""
        return sorted(((number, each) for each, number in self._optimizers.items()), key=lambda pair: pair[0])

    def forget_optimizers(self) -> None:
        """Count optimizers anew, and forget the unwrapped models that they trained."""
        self._optimizers.clear()
        self._roots.clear()
        self._seen_optimizers = 0

    def registered(self) -> frozenset[int]:
        """Ids of all parameters that a wrapper synchronizes."""
        return frozenset().union(*(each.registered for each in self.wrapped()))

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Wrapped models and unwrapped ones that optimizers train, each with the prefix of its tensors' names."""
        for each in self.wrapped():
            if (model := each.model()) is not None and not each.sharded:
                yield (f"{each.number}/" if each.number else ""), model
        for number, root in enumerate(self._roots):
            if (model := root()) is not None:
                yield f"{type(model).__name__}/" if number == 0 else f"{type(model).__name__}#{number}/", model

    def names(self) -> dict[int, str]:
        """Names of all known parameters, by id."""
        found: dict[int, str] = {}
        for prefix, model in self.modules():
            for name, parameter in model.named_parameters():
                found.setdefault(id(parameter), prefix + name)
        for number, optimizer in self.optimizers():
            prefix = f"{type(optimizer).__name__}" + (f"#{number}" if number else "")
            for index, each in enumerate(parameters_of(optimizer)):
                found.setdefault(id(each), f"{prefix}/{index}")
        return found

    def loose(self) -> list[tuple[str, Tensor]]:
        """Parameters of optimizers that no module holds, with a name that says where they are."""
        held = {id(each) for _, model in self.modules() for each in model.parameters()} | self.registered()
        names = self.names()
        found = [each for _, optimizer in self.optimizers() for each in parameters_of(optimizer)]
        return [(names[id(each)], each) for each in found if id(each) not in held]

    def _look_for_roots(self, parameters: Iterable[Tensor]) -> None:
        """Find the modules that hold parameters which no known model has: a look at all objects, once an optimizer."""
        known = {id(each) for _, model in self.modules() for each in model.parameters()} | self.registered()
        unknown = {id(each) for each in parameters if id(each) not in known}
        if not unknown:
            return
        holders = [each for each in gc.get_objects() if issubclass(type(each), nn.Module) and is_ready(each)]
        inner = {id(child) for each in holders for child in each._modules.values() if child is not None}
        wrapped = {id(each.wrapper()) for each in self.wrapped()}
        for each in holders:
            if id(each) in inner or id(each) in wrapped:
                continue
            if not any(id(parameter) in unknown for parameter in each.parameters()):
                continue
            if sharder := sharder_of(each):
                self.sharded.append((self.add(each, each, sharded=True), sharder))
            else:
                self._roots.append(weakref.ref(each))


def is_ready(module: nn.Module) -> bool:
    """False for a module whose `__init__` has not run yet, or never does."""
    return {"_modules", "_parameters"} <= vars(module).keys()


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All parameters of an optimizer, in order."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def is_shard(tensor: Tensor) -> bool:
    """True if this rank may hold only a part of it, as with `fully_shard` and tensor parallelism."""
    module: Any = sys.modules.get("torch.distributed.tensor")  # importing it takes a second
    return module is not None and isinstance(tensor, module.DTensor)


def sharder_of(model: nn.Module) -> str:
    """Name the method that keeps only a part of each parameter on a rank; empty where there is none."""
    for each in model.modules():
        for kind in type(each).__mro__:
            if kind.__name__ in _SHARDERS:
                return "fully_shard" if kind.__name__ == "FSDPModule" else kind.__name__
    return "DTensor" if any(is_shard(each) for each in model.parameters()) else ""
