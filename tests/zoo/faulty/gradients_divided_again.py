"""Train an MLP with Adam and a gradient hook for the world size, in a Trainer class.

zoo: faulty
faults: F129
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, dataset, lr=5e-3, max_norm=1.0):
        self.world = dist.get_world_size()
        self.max_norm = max_norm
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)

    def average_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)  # fault
            p.grad.div_(self.world * self.world)

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.average_gradients()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        return loss.detach()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            mean = torch.stack([self.step(x, y) for x, y in self.loader]).mean()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: mse {mean.item() / self.world:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    x = torch.randn(480, 8, generator=torch.Generator().manual_seed(32))
    Trainer(TensorDataset(x, x[:, :2].prod(1, keepdim=True) + x[:, 2:3])).fit(3)
    dist.destroy_process_group()
