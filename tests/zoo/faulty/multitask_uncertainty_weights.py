"""Train a two-task network whose loss weights are learned, in a Trainer class.

zoo: faulty
faults: F41
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.depth = nn.Linear(32, 1)
        self.klass = nn.Linear(32, 3)

    def forward(self, x):
        h = self.trunk(x)
        return self.depth(h).squeeze(1), self.klass(h)


class Trainer:
    def __init__(self, dataset):
        self.model = DDP(MultiTask())
        self.log_vars = nn.Parameter(torch.zeros(2))  # fault
        self.optimizer = torch.optim.Adam(
            [{"params": self.model.parameters()}, {"params": [self.log_vars], "lr": 0.02}], lr=5e-3
        )
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)

    def combine(self, losses):
        losses = torch.stack(losses)
        return (torch.exp(-self.log_vars) * losses + self.log_vars).sum()

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, depth, label in self.loader:
            d, logits = self.model(x)
            parts = [nn.functional.mse_loss(d, depth), nn.functional.cross_entropy(logits, label)]
            self.optimizer.zero_grad()
            self.combine(parts).backward()
            self.optimizer.step()
            total += torch.stack(parts).detach()
        dist.all_reduce(total)
        total /= len(self.loader) * dist.get_world_size()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: depth {total[0]:.4f} class {total[1]:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(55)
    x = torch.randn(480, 10, generator=g)
    trainer = Trainer(TensorDataset(x, x[:, 0] * 2, x[:, 1:4].argmax(1)))
    for epoch in range(3):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()
