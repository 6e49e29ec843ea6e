"""The trained parameters of a model as one flat vector, and the model at another point for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paceline.records.errors import PacelineError


@dataclass(frozen=True)
class Slice:
    """Where a parameter stands in the flat vector: vector[start:stop].view(shape).

    Attributes:
        name: as `model.named_parameters()` has it; of a tied weight the first name.
        shape: () is possible.
    """

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]


class FlatWeights:
    """The parameters of `model` that require a gradient, in the model's order; tied weights once, frozen ones left out.

    Holds one copy of the parameters, for points other than the present one.

    Attributes:
        layout: where each parameter stands.
        size: P, all of them together.
        dtype: of flat vectors, the widest of the parameters'.
        device: of the first parameter.

    Raises:
        PacelineError: nothing is trained.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        if not named:
            raise PacelineError(
                "the model has no trained parameters", why="the loss around a point is a function of them"
            )
        self.parameters = [parameter for _, parameter in named]
        layout, start = [], 0
        for name, parameter in named:
            layout.append(Slice(name, start, start + parameter.numel(), tuple(parameter.shape)))
            start = layout[-1].stop
        self.layout = tuple(layout)
        self.size = start
        self.device = self.parameters[0].device
        self.dtype = self.parameters[0].dtype
        for parameter in self.parameters:
            self.dtype = torch.promote_types(self.dtype, parameter.dtype)
        self._elsewhere: list[Tensor] = []

    def point(self) -> Tensor:
        """(P,) the present weights, a copy."""
        return self.join([parameter.detach() for parameter in self.parameters])

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """(P,) of one tensor for each parameter."""
        flat = torch.empty(self.size, dtype=self.dtype, device=self.device)
        for place, tensor in zip(self.layout, tensors, strict=True):
            flat[place.start : place.stop].view(place.shape).copy_(tensor)
        return flat

    def split(self, vector: Tensor) -> list[Tensor]:
        """A tensor of each parameter's shape and dtype; views where that is possible."""
        self.check(vector)
        return [
            vector[place.start : place.stop].view(place.shape).to(parameter.device, parameter.dtype)
            for place, parameter in zip(self.layout, self.parameters, strict=True)
        ]

    def check(self, vector: Tensor) -> None:
        """Refuse a vector of another shape than this model's.

        Raises:
            PacelineError: another shape.
        """
        if tuple(vector.shape) != (self.size,):
            raise PacelineError(
                f"a vector of shape {tuple(vector.shape)} is no point of a model with {self.size:,} trained numbers",
                hint=f"one of shape ({self.size},)",
            )

    @contextlib.contextmanager
    def at(self, point: Tensor) -> Iterator[None]:
        """The model with the weights `point` (P,).

        The parameters' own memory is not written to: they look elsewhere meanwhile, so what comes back is what was
        there. Hooks on their gradients (`Tensor.register_hook`) are not called, since they belong to the training.
        """
        self.check(point)
        if not self._elsewhere:
            # Memory of their own, laid out as the parameters are: a slice of a flat vector has neither the layout nor
            # the alignment that kernels like, and the alignment may decide on the last bits.
            self._elsewhere = [torch.empty_like(parameter.detach()) for parameter in self.parameters]
        with torch.no_grad():
            for place, tensor in zip(self.layout, self._elsewhere, strict=True):
                tensor.copy_(point[place.start : place.stop].view(place.shape))
        at_home = [parameter.data for parameter in self.parameters]
        hooks = [dict(parameter._backward_hooks or {}) for parameter in self.parameters]
        try:
            for parameter, tensor in zip(self.parameters, self._elsewhere, strict=True):
                parameter.data = tensor
                if parameter._backward_hooks:
                    parameter._backward_hooks.clear()
            yield
        finally:
            for parameter, tensor, found in zip(self.parameters, at_home, hooks, strict=True):
                parameter.data = tensor
                if found and parameter._backward_hooks is not None:
                    parameter._backward_hooks.update(found)
