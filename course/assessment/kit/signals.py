"""The data and the networks of the assessment. Use them as they are: the grader brings its own copy of this file.

A signal is 64 numbers: one of eight shapes, at any place, of any pitch and strength, under noise. All of it is drawn
from a seed, so that there are as many signals as one likes, and some that nobody has seen before. Which number a shape
has follows from the seed, too: seeds that differ by a multiple of 1,000,000 agree on it.

Samples are read by their number, one by one or many at once:

    data = Signals(samples=1000, seed=1)
    signal, label = data[17]                     # (1, 64) and a number
    signals, labels = data.batch([17, 3, 256])   # (3, 1, 64) and (3,)
"""

import math

import torch
from torch import nn
from torch.utils.data import Dataset

CLASSES = ("tone", "chord", "rising", "falling", "square", "burst", "beat", "step")
VARIANTS = ("plain", "tied", "frozen", "norm")
LENGTH = 64
NOISE = 0.55


class Signals(Dataset):
    """Signals and their classes; the same numbers for the same seed, wherever they are drawn."""

    def __init__(self, samples, seed):
        self._signals, self._labels = _draw(samples, seed)

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, index):
        signals, labels = self.batch([int(index)])
        return signals[0], labels[0]

    def batch(self, indices):
        """The samples with these numbers, stacked; a list, a range or a tensor of numbers, which may be empty."""
        chosen = torch.as_tensor(list(indices), dtype=torch.int64)
        return self._signals[chosen].to(torch.get_default_dtype()), self._labels[chosen]


def order(samples, seed, epoch):
    """In which order an epoch goes through the samples: a tensor with every number once.

    Batch k of an epoch is order[k * batch : (k + 1) * batch], whatever the number of processes; the last one may be
    smaller.
    """
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))


def make_model(variant="plain", seed=0):
    """A network with the weights that belong to the seed, in torch's default floating-point type.

    plain    normalises each sample by itself
    tied     uses the weights of one layer twice
    frozen   has a first layer that is not trained
    norm     has batch norms: their statistics are those of the whole global batch, as on one device
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant is {variant!r}; one of {', '.join(VARIANTS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Network(variant)
    if variant == "frozen":
        model.first.requires_grad_(False)
    return model


class Network(nn.Module):
    """Three convolutions, the mean over time, one linear layer."""

    def __init__(self, variant):
        super().__init__()
        norm = nn.BatchNorm1d if variant == "norm" else lambda channels: nn.GroupNorm(4, channels)
        self.first = nn.Conv1d(1, 48, kernel_size=9, stride=2, padding=4)
        self.second = nn.Conv1d(48, 48, kernel_size=5, stride=2, padding=2)
        self.third = nn.Conv1d(48, 48, kernel_size=5, stride=2, padding=2)
        self.norms = nn.ModuleList(norm(48) for _ in range(3))
        self.last = nn.Linear(48, len(CLASSES))
        if variant == "tied":
            self.third.weight = self.second.weight

    def forward(self, signals):
        """Scores (n, 8) for signals (n, 1, 64)."""
        hidden = signals
        for layer, norm in zip((self.first, self.second, self.third), self.norms, strict=True):
            hidden = torch.relu(norm(layer(hidden)))
        return self.last(hidden.mean(dim=2))


def _draw(samples, seed):
    generator = torch.Generator().manual_seed(0x51600000 + seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand(samples, 1, generator=generator, dtype=torch.float64)

    shape_of = torch.randint(len(CLASSES), (samples,), generator=generator)
    names = torch.randperm(len(CLASSES), generator=torch.Generator().manual_seed(0x1AB00000 + seed % 1_000_000))
    time = torch.arange(LENGTH, dtype=torch.float64)[None] / LENGTH
    pitch, phase, strength = uniform(3.0, 9.0), uniform(0.0, 2 * math.pi), uniform(0.7, 1.3)
    place, width, ratio, sweep = uniform(0.2, 0.8), uniform(0.08, 0.16), uniform(1.4, 1.9), uniform(0.5, 1.0)
    turn = 2 * math.pi * pitch * time + phase
    bend = 2 * math.pi * pitch * sweep * time * time
    window = torch.exp(-0.5 * ((time - place) / width) ** 2)
    shapes = torch.stack(
        [
            torch.sin(turn),
            0.7 * (torch.sin(turn) + torch.sin(ratio * turn)),
            torch.sin(turn + bend),
            torch.sin(turn + 2 * math.pi * pitch * sweep * time - bend),
            0.8 * torch.sign(torch.sin(turn)),
            1.5 * window * torch.sin(turn),
            torch.sin(turn) * torch.sin(2 * math.pi * (1.0 + ratio) * time + phase),
            torch.sign(time - place) * 0.6 + 0.5 * torch.sin(turn),
        ]
    )
    clean = shapes[shape_of, torch.arange(samples)] * strength
    noise = torch.randn(samples, LENGTH, generator=generator, dtype=torch.float64)
    return (clean + NOISE * noise).unsqueeze(1), names[shape_of]
