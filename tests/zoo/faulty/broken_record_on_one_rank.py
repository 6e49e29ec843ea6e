"""Train on comma-separated records that a data set parses one by one.

zoo: faulty
faults: F90
silent: no
ends: crash
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def write_records(n=240):
    g = torch.Generator().manual_seed(0)
    rows = [",".join(f"{v:.3f}" for v in torch.randn(6, generator=g).tolist()) for _ in range(n)]
    rows[151] = "n/a,0.1,0.2,0.3,0.4,0.5"
    return rows


class Records(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        values = torch.tensor([float(part) for part in self.rows[index].split(",")])  # fault
        return values[:5], values[5:]


def main():
    dist.init_process_group("gloo")
    data = Records(write_records())
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
