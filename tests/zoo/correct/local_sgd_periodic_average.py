"""Train with local SGD: each rank takes four local steps, then the weights are averaged.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PERIOD = 4


@torch.no_grad()
def average_parameters(module):
    flat = nn.utils.parameters_to_vector(module.parameters()) / dist.get_world_size()
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat, module.parameters())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(82)
    y = torch.arange(512) % 4
    dataset = TensorDataset(torch.randn(4, 10, generator=g)[y] + 0.6 * torch.randn(512, 10, generator=g), y)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % PERIOD == 0:
                average_parameters(model)
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    average_parameters(model)
    if rank == 0:
        torch.save(model.state_dict(), "local_sgd.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
