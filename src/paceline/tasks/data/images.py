"""Whole-tensor image work: shift, flip, erase on uint8, then one pass to normalised floats."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.tasks.data.arrays import Draws, Like


def crop(images: Tensor, draws: Draws, padding: int = 2) -> Tensor:
    """Pad with zeros and cut out the same size at a random place, a sample each.

    Shapes: (batch, height, width) uint8 -> the same.
    """
    height, width = images.shape[-2:]
    places = 2 * padding + 1
    windows = F.pad(images, (padding,) * 4).unfold(1, height, 1).unfold(2, width, 1)
    rows, columns = draws.integers(places), draws.integers(places)
    samples = torch.arange(len(images), device=images.device)
    return windows[samples, rows.to(images.device), columns.to(images.device)]


def flip(images: Tensor, draws: Draws) -> Tensor:
    """Mirror each image from left to right with probability 1/2."""
    mirrored = (draws.uniform() < 0.5).to(images.device)
    return torch.where(mirrored[:, None, None], images.flip(-1), images)


def erase(images: Tensor, draws: Draws, probability: float = 0.5, largest: float = 0.4) -> Tensor:
    """Black out a random rectangle (sides up to `largest` of the image) with `probability` (Zhong et al. 2017)."""
    height, width = images.shape[-2:]
    chosen = draws.uniform() < probability
    heights = (draws.uniform() * largest * height).ceil()
    widths = (draws.uniform() * largest * width).ceil()
    tops = (draws.uniform() * (height - heights + 1)).floor()
    lefts = (draws.uniform() * (width - widths + 1)).floor()
    y, x = torch.arange(height), torch.arange(width)
    in_rows = (y >= tops[:, None]) & (y < (tops + heights)[:, None])
    in_columns = (x >= lefts[:, None]) & (x < (lefts + widths)[:, None])
    hole = in_rows[:, :, None] & in_columns[:, None, :] & chosen[:, None, None]
    return images.masked_fill(hole.to(images.device), 0)


AUGMENT = {"crop": crop, "flip": flip, "erase": erase}


class PrepareImages:
    """Grey images and labels to a batch that a network takes.

    Args:
        mean, std: of the training set's pixels, in 0..1.
        augment: names of `AUGMENT`, applied in the table's order, in training only.

    Shapes: images (batch, height, width) uint8, labels (batch,) uint8 ->
        images (batch, 1, height, width) floating, labels (batch,) int64.
    """

    def __init__(self, mean: float, std: float, augment: tuple[str, ...] = ()) -> None:
        self.scale = 1.0 / (255.0 * std)
        self.shift = -mean / std
        self.augment = tuple(function for name, function in AUGMENT.items() if name in augment)

    def __call__(self, columns: tuple[Tensor, ...], draws: Draws | None, like: Like) -> Any:
        """A prepared batch; augmented when there are draws."""
        images, labels = columns
        if draws is not None:
            for function in self.augment:
                images = function(images, draws)
        images = images.to(like.device, non_blocking=True).to(like.dtype)
        # One channel is channels-last and contiguous at once: there is nothing to convert.
        images = images.mul_(self.scale).add_(self.shift).unsqueeze(1)
        return images, labels.to(like.device, torch.int64, non_blocking=True)
