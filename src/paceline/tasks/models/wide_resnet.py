"""WideResNet (Zagoruyko and Komodakis 2016) with pre-activation blocks, for 28x28 and 32x32 images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """BN-ReLU-conv twice, added to its input; the input is projected when its shape changes.

    Shapes: (batch, in_channels, h, w) -> (batch, out_channels, h / stride, w / stride).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The block's output."""
        active = F.relu(self.norm1(inputs))
        kept = inputs if self.shortcut is None else self.shortcut(active)
        hidden = self.conv1(active)
        added: Tensor = self.conv2(F.relu(self.norm2(hidden))) + kept
        return added


class WideResNet(nn.Module):
    """Depth 6n+4 with three groups of 16, 32, 64 channels times `width`.

    Args:
        depth: 6n+4, so 10, 16, 22, 28 ...
        width: factor on the channels, above 0; 10 at depth 16 has 17.1 million parameters, 1 has 0.18 million.
        in_channels: 1 for grey images.

    Shapes: images (batch, in_channels, h, w) -> logits (batch, 10).
    """

    def __init__(self, depth: int = 16, width: float = 1.0, in_channels: int = 1) -> None:
        super().__init__()
        if (depth - 4) % 6 or depth < 10:
            raise ValueError(f"depth {depth} is not 6n+4")
        blocks = (depth - 4) // 6
        widths = [max(1, round(channels * width)) for channels in (16, 32, 64)]
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        channels = 16
        for group, out_channels in enumerate(widths):
            for index in range(blocks):
                layers.append(Block(channels, out_channels, stride=2 if group and not index else 1))
                channels = out_channels
        self.blocks = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images."""
        hidden = F.relu(self.norm(self.blocks(self.stem(images))))
        logits: Tensor = self.head(hidden.mean(dim=(2, 3)))
        return logits
