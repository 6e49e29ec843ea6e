"""Models of the checks of lab 4, each with something that is easily forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

FEATURES = 6


class Plain(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 5)
        self.last = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Two numbers a sample."""
        return self.last(torch.tanh(self.first(x)))


class Frozen(nn.Module):
    """Two layers that are not trained and have no gradient: the first one, and one in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
        self.first = nn.Linear(FEATURES, 5)
        self.middle = nn.Linear(5, 5).requires_grad_(False)
        self.last = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Through the frozen layers."""
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(torch.tanh(self.before(x)))))))


class Tied(Plain):
    """One weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(5, FEATURES, bias=False)
        self.again.weight = nn.Parameter(self.first.weight.detach().T.clone())
        self.once_more = self.last

    def forward(self, x: Tensor) -> Tensor:
        """The last layer twice."""
        hidden = torch.tanh(self.first(x))
        return self.last(hidden) + self.once_more(torch.tanh(hidden)) + self.again(hidden)[:, :2]


class Unused(Plain):
    """A layer that nobody calls: its gradient stays None."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


class Buffered(Plain):
    """Two buffers that the forward reads; the second one is not saved, so that state_dict() lacks it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.randn(FEATURES))
        self.register_buffer("scale", torch.rand(FEATURES) + 0.5, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shifted and scaled."""
        return super().forward((x + self.shift) * self.scale)


MODELS: dict[str, type[nn.Module]] = {
    "two layers": Plain,
    "frozen layers": Frozen,
    "a weight used twice": Tied,
    "a layer that is not used": Unused,
    "buffers": Buffered,
}

NO_GRADIENT = ("frozen layers", "a layer that is not used")
"""Models that have parameters without a gradient."""


class Chain(nn.Module):
    """One weight after the other, in an order that is given with each forward.

    Args:
        sizes: elements of each weight, in the order of `parameters()`.
        frozen: those that are not trained.
    """

    def __init__(self, sizes: Sequence[int], frozen: Sequence[int]) -> None:
        super().__init__()
        weights = [nn.Parameter(torch.randn(size) / size, index not in frozen) for index, size in enumerate(sizes)]
        self.weights = nn.ParameterList(weights)

    def forward(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """Each weight in its turn; every element has another gradient."""
        for index in order:
            weight = self.weights[index]
            x = torch.sin(x + weight @ torch.linspace(1, 2, len(weight), dtype=weight.dtype))
        return x
