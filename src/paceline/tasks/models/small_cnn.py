"""The network of the task `shapes`: small enough that a training takes seconds on one CPU thread."""

from __future__ import annotations

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Three convolutions with batch norm, an average over the image, one linear layer.

    Shapes: images (batch, 1, h, w) -> logits (batch, 10).
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 1
        for after in (12, 24, 36):
            layers += [
                nn.Conv2d(before, after, kernel_size=3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
            if after < 36:
                layers.append(nn.MaxPool2d(2))
            before = after
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (batch, 10) of images (batch, 1, h, w)."""
        logits: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return logits
