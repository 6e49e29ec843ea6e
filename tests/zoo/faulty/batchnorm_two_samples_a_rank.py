"""Train a convnet with batch normalization on two large samples for each rank, in plain functions.

zoo: faulty
faults: F56
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Volumes(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        label = i % 2
        volume = torch.randn(1, 6, 12, 12, generator=g)
        volume[:, 2:4] += label * torch.linspace(0, 2, 12)
        return volume, label


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv3d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm3d(cout),  # fault
        nn.ReLU(inplace=True),
        nn.MaxPool3d((1, 2, 2)),
    )


def main():
    dist.init_process_group("gloo")
    data = Volumes()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=2, sampler=sampler)
    model = nn.Sequential(conv_block(1, 4), conv_block(4, 8), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 2))
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        sums = torch.zeros(2)
        for volume, label in loader:
            loss = nn.functional.cross_entropy(model(volume), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(label), len(label)])
        dist.all_reduce(sums)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {sums[0] / sums[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
