"""The models of a process: which are wrapped, what their tensors are called, and which parameters nobody wraps.

Holds models weakly: what the script drops is dropped.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # torch without distributed
    DTensor = None  # type: ignore[assignment,misc]


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
        return wrapped

    def wrapped(self) -> Iterator[Wrapped]:
        """Models whose wrapper still exists."""
        return (each for each in self._wrapped if each.wrapper() is not None)

    @property
    def any_wrapped(self) -> bool:
        """Whether a model was ever wrapped."""
        return bool(self._wrapped)

    def find(self, wrapper: nn.Module) -> Wrapped | None:
        """What is known of a wrapping module."""
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
            if (model := each.model()) is not None:
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
            for index, parameter in enumerate(parameters_of(optimizer)):
                found.setdefault(id(parameter), f"{prefix}/{index}")
        return found

    def loose(self) -> list[tuple[str, Tensor]]:
        """Parameters of optimizers that no module holds, with a name that says where they are."""
        held = {id(each) for _, model in self.modules() for each in model.parameters()}
        names = self.names()
        found = [each for _, optimizer in self.optimizers() for each in parameters_of(optimizer)]
        return [(names[id(each)], each) for each in found if id(each) not in held]

    def _look_for_roots(self, parameters: Iterable[Tensor]) -> None:
        """Find the modules that hold parameters which no known model has: a look at all objects, once an optimizer."""
        known = {id(each) for _, model in self.modules() for each in model.parameters()}
        unknown = {id(each) for each in parameters if id(each) not in known}
        if not unknown:
            return
        holders = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
        inner = {id(child) for each in holders for child in each._modules.values() if child is not None}
        wrapped = {id(each.wrapper()) for each in self.wrapped()}
        for each in holders:
            if id(each) in inner or id(each) in wrapped:
                continue
            if any(id(parameter) in unknown for parameter in each.parameters()):
                self._roots.append(weakref.ref(each))


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All parameters of an optimizer, in order."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def is_shard(tensor: Tensor) -> bool:
    """Whether this rank holds only a part of it, as with `fully_shard` and tensor parallelism."""
    return DTensor is not None and isinstance(tensor, DTensor)
