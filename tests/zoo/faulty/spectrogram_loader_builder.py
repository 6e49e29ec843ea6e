"""Train a recurrent net on spectrogram frames, with a builder that makes the loaders of all splits.

zoo: faulty
faults: F04
silent: no
ends: crash
"""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class LoaderConfig:
    batch_size: int = 16
    shuffle: bool = True
    drop_last: bool = True
    num_workers: int = 0


class LoaderBuilder:
    def __init__(self, config, rank, world_size):
        self.config, self.rank, self.world_size = config, rank, world_size

    def build(self, dataset, training):
        sampler = None
        if self.world_size > 1:
            sampler = DistributedSampler(dataset, self.world_size, self.rank, shuffle=training)
        return DataLoader(
            dataset,
            batch_size=self.config.batch_size,
            shuffle=training and self.config.shuffle,  # fault
            sampler=sampler,
            drop_last=training and self.config.drop_last,
            num_workers=self.config.num_workers,
        )


class FrameClassifier(nn.Module):
    def __init__(self, mels=20, hidden=24, phones=6):
        super().__init__()
        self.rnn = nn.GRU(mels, hidden, batch_first=True)
        self.head = nn.Linear(hidden, phones)

    def forward(self, frames):
        return self.head(self.rnn(frames)[0]).transpose(1, 2)


def utterances(n, seed):
    g = torch.Generator().manual_seed(seed)
    phones = torch.randint(0, 6, (n, 12), generator=g)
    frames = torch.eye(6, 20)[phones] + 0.3 * torch.randn(n, 12, 20, generator=g)
    return TensorDataset(frames, phones)


def main():
    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    builder = LoaderBuilder(LoaderConfig(), rank, world_size)
    loader = builder.build(utterances(320, 0), training=True)
    model = DistributedDataParallel(FrameClassifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for frames, phones in loader:
            loss = nn.functional.cross_entropy(model(frames), phones)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
