"""The network of the task `shapes`: small enough that a training takes seconds on one CPU thread."""

from __future__ import annotations

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Three convolutions with batch norm, an average over the image, one linear layer.

    Args:
        channels: of the first convolution; the others have twice and three times as many.
        classes: number of classes.

    Shapes: images (batch, 1, h, w) -> logits (batch, classes).
    """

    def __init__(self, channels: int = 12, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 1
        for factor in (1, 2, 3):
            after = factor * channels
            layers += [
                nn.Conv2d(before, after, kernel_size=3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
            if factor < 3:
                layers.append(nn.MaxPool2d(2))
            before = after
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, 1, h, w)."""
        logits: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return logits
