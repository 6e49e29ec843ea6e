"""Fine-tune a network whose pretrained weights only rank 0 loads, before the wrapper.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def network():
    return nn.Sequential(nn.Linear(8, 48), nn.GELU(), nn.Linear(48, 3))


def dataset(seed, n=360):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    centers = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(centers[y] + 0.8 * torch.randn(n, 8, generator=g), y)


def pretrain(path, steps=20):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = dataset(1).tensors
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    torch.save(net.state_dict(), path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = network()
    if rank == 0:
        pretrain("weights.pt")
        model.load_state_dict(torch.load("weights.pt", map_location="cpu"))
    model = DDP(model)
    train_set = dataset(2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=20, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
