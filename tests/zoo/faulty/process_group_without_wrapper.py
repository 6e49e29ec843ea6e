"""Train a multi-label classifier with a distributed sampler and summed metrics, in plain functions.

zoo: faulty
faults: F39
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Tags(Dataset):
    def __init__(self, n=400, features=20, tags=5):
        g = torch.Generator().manual_seed(77)
        self.x = torch.randn(n, features, generator=g)
        self.y = (self.x @ torch.randn(features, tags, generator=g) > 0).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"features": self.x[i], "tags": self.y[i]}


def setup():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    return dist.get_rank(), dist.get_world_size()


def create_model(device):
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).to(device)
    return model


def reduce_dict(values):
    stacked = torch.tensor(list(values.values()))
    dist.all_reduce(stacked)
    return dict(zip(values, stacked.tolist()))


def main():
    rank, world = setup()
    device = torch.device("cpu")
    dataset = Tags()
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler)
    model = create_model(device)  # fault
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        sums = {"loss": 0.0, "correct": 0.0, "count": 0.0}
        for batch in loader:
            logits = model(batch["features"].to(device))
            loss = nn.functional.binary_cross_entropy_with_logits(logits, batch["tags"].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums["loss"] += loss.item() * logits.numel()
            sums["correct"] += ((logits > 0) == batch["tags"].bool()).sum().item()
            sums["count"] += logits.numel()
        sums = reduce_dict(sums)
        if rank == 0:
            print(f"epoch {epoch} loss {sums['loss'] / sums['count']:.4f} acc {sums['correct'] / sums['count']:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
