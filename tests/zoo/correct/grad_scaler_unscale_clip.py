"""Train an MLP with a GradScaler, unscaled clipping and accumulation, in a Trainer class.

zoo: correct
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, dataset, accumulate=2):
        self.accumulate = accumulate
        self.model = DDP(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=10)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=10, sampler=self.sampler)
        assert len(self.loader) % accumulate == 0

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for i, (x, y) in enumerate(self.loader, start=1):
            update = i % self.accumulate == 0
            with nullcontext() if update else self.model.no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    prediction = self.model(x)
                loss = nn.functional.mse_loss(prediction.float(), y)
                self.scaler.scale(loss / self.accumulate).backward()
            if update:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f} scale {self.scaler.get_scale():.0f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    x = torch.randn(480, 10, generator=torch.Generator().manual_seed(31))
    trainer = Trainer(TensorDataset(x, x[:, :2].abs().sum(1, keepdim=True)))
    for epoch in range(4):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()
