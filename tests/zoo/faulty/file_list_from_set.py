"""Train a classifier on many small files that are first deduplicated by name.

zoo: faulty
faults: F13
silent: yes
launcher: real
"""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

MANIFESTS = [[f"scene_{i:03d}" for i in range(0, 240)], [f"scene_{i:03d}" for i in range(120, 320)]]


class Scenes(Dataset):
    def __init__(self, manifests):
        names = set()
        for manifest in manifests:
            names.update(manifest)
        self.names = list(names)  # fault

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        number = int(self.names[index].split("_")[1])
        rng = np.random.default_rng(number)
        label = number % 4
        features = rng.normal(loc=label, size=20).astype(np.float32)
        return torch.from_numpy(features), label


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = Scenes(MANIFESTS)
    sampler = DistributedSampler(dataset, shuffle=True, seed=3)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        sums = torch.zeros(3)
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(y), (logits.argmax(1) == y).sum().item(), len(y)])
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[2]:.4f}, accuracy {sums[1] / sums[2]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
