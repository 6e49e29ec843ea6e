"""Train a convnet with asynchronous gradient reduction from hooks instead of a wrapper.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Reducer:
    """Averages each gradient while the backward pass goes on; `wait` ends the overlap."""

    def __init__(self, module):
        self.handles = []
        self.world = dist.get_world_size()
        with torch.no_grad():
            for p in module.parameters():
                dist.broadcast(p, src=0)
                p.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, p):
        p.grad.div_(self.world)
        self.handles.append(dist.all_reduce(p.grad, async_op=True))

    def wait(self):
        for handle in self.handles:
            handle.wait()
        self.handles.clear()


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 12, 5, padding=2)
        self.norm = nn.GroupNorm(3, 12)
        self.out = nn.Linear(12, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).amax(-1))


def signals(n=384, length=24):
    g = torch.Generator().manual_seed(53)
    y = torch.arange(n) % 3
    t = torch.arange(length) / length
    wave = torch.stack([torch.sin(2 * torch.pi * (y + 1).unsqueeze(1) * t), torch.cos(5 * t).expand(n, -1)], dim=1)
    return TensorDataset(wave + 0.3 * torch.randn(n, 2, length, generator=g), y)


def main():
    dist.init_process_group("gloo")
    dataset = signals()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = SmallNet()
    reducer = Reducer(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            reducer.wait()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
