"""Train an MLP with a hand-written Nesterov update on torch.autograd.grad.

zoo: faulty
faults: F44
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def nesterov(params, grads, velocity, lr, mu=0.9):
    with torch.no_grad():
        for p, g, v in zip(params, grads, velocity):
            v.mul_(mu).add_(g)
            p.sub_(lr * (g + mu * v))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    g = torch.Generator().manual_seed(2)
    x = torch.randn(480, 9, generator=g)
    y = (x[:, :3].sum(1, keepdim=True)).tanh()
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, 1)))
    params = list(model.parameters())
    velocity = [torch.zeros_like(p) for p in params]
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            grads = torch.autograd.grad(loss, params)  # fault
            nesterov(params, grads, velocity, lr=0.02)
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {total.item() / len(loader) / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
