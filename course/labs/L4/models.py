"""Models of the checks of lab 4, each with something that is easily forgotten."""

from __future__ import annotations

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


class Frozen(Plain):
    """A layer that is not trained: it has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Linear(5, 5)
        self.middle.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Through the frozen layer."""
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))


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
    """A buffer that the forward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.randn(FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        """Shifted."""
        return super().forward(x + self.shift)


MODELS: dict[str, type[nn.Module]] = {
    "two layers": Plain,
    "a frozen layer": Frozen,
    "a weight used twice": Tied,
    "a layer that is not used": Unused,
    "a buffer": Buffered,
}
