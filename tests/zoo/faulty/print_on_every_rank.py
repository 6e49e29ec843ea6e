"""Train a logistic regression and print progress, in plain functions.

zoo: faulty
faults: F102
silent: no
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load():
    g = torch.Generator().manual_seed(16)
    x = torch.randn(480, 9, generator=g)
    return TensorDataset(x, (x.mean(1) > 0).float())


def train_epoch(model, loader, optimizer):
    sums = torch.zeros(3)
    for x, y in loader:
        logits = model(x).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums += torch.tensor([loss.item() * len(y), ((logits > 0) == y.bool()).sum().item(), len(y)])
    dist.all_reduce(sums)
    return sums[:2] / sums[2]


def main():
    dist.init_process_group("gloo")
    data = load()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Linear(9, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        loss, accuracy = train_epoch(model, loader, optimizer).tolist()
        print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)  # fault
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
