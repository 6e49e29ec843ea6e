"""Train a sequence labeler on several machines, with a small class for the process group.

zoo: faulty
faults: F107
silent: no
observable: no, on one machine both ranks are the same, and there is no GPU
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Cluster:
    """The process group as a context: knows its ranks and its device."""

    def __enter__(self):
        self.rank = int(os.environ["RANK"])
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        if torch.cuda.is_available():
            self.device = torch.device(f"cuda:{self.rank}")  # fault
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl")
        else:
            self.device = torch.device("cpu")
            dist.init_process_group("gloo")
        return self

    def __exit__(self, *_):
        dist.destroy_process_group()

    @property
    def is_main(self):
        return self.rank == 0

    def wrap(self, module):
        module = module.to(self.device)
        return DDP(module, device_ids=[self.device] if self.device.type == "cuda" else None)

    def mean(self, value):
        value = torch.as_tensor(value, device=self.device, dtype=torch.float32)
        dist.all_reduce(value)
        return value.item() / self.world_size


class Labeler(nn.Module):
    def __init__(self, symbols=24, dim=20, labels=4):
        super().__init__()
        self.embed = nn.Embedding(symbols, dim)
        self.lstm = nn.LSTM(dim, dim, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * dim, labels)

    def forward(self, x):
        return self.fc(self.lstm(self.embed(x))[0])


def sequences(n=320, length=10):
    x = torch.randint(0, 24, (n, length), generator=torch.Generator().manual_seed(88))
    return TensorDataset(x, (x + x.roll(1, dims=1)) % 4)


def main():
    with Cluster() as cluster:
        dataset = sequences()
        sampler = DistributedSampler(dataset, cluster.world_size, cluster.rank)
        loader = DataLoader(dataset, batch_size=16, sampler=sampler)
        model = cluster.wrap(Labeler())
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for x, labels in loader:
                logits = model(x.to(cluster.device))
                loss = nn.functional.cross_entropy(logits.transpose(1, 2), labels.to(cluster.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            mean = cluster.mean(loss.item())
            if cluster.is_main:
                print(f"epoch {epoch}: loss of the last batches {mean:.4f}")


if __name__ == "__main__":
    main()
