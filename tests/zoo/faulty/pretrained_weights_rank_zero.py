"""Fine-tune a pretrained classifier, in plain functions.

zoo: faulty
faults: F95
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def network():
    return nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 3))


def task(seed, n=360):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=g)
    return TensorDataset(x, (x @ torch.randn(10, 3, generator=torch.Generator().manual_seed(0))).argmax(1))


def pretrain(path):
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for x, y in DataLoader(task(1), batch_size=60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    torch.save(net.state_dict(), path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        pretrain("pretrained.pt")
    dist.barrier()

    model = DDP(network())
    if rank == 0:
        model.module.load_state_dict(torch.load("pretrained.pt", map_location="cpu"))  # fault
    dataset = task(2)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
