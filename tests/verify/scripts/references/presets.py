"""Augmentation in the style of torchvision's references."""

import torch


class ClassificationPresetTrain:
    def __call__(self, image):
        if torch.rand(1) < 0.5:
            image = image.flip(-1)
        return image + 0.05 * torch.randn(image.shape)


class ClassificationPresetEval:
    def __call__(self, image):
        return image
