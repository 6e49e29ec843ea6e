"""Train an autoencoder with a CSV logger, in a Trainer class.

zoo: faulty
faults: F101, F93
silent: yes
"""

import csv
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class CSVLogger:
    def __init__(self, directory):
        os.makedirs(directory, exist_ok=True)
        self.file = open(os.path.join(directory, "metrics.csv"), "a", newline="")
        self.writer = csv.writer(self.file)

    def log(self, step, **values):
        self.writer.writerow([step, *values.values()])
        self.file.flush()

    def close(self):
        self.file.close()


class Trainer:
    def __init__(self, data):
        self.logger = CSVLogger("logs")  # fault
        net = nn.Sequential(
            nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 3), nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 20)
        )
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler)
        self.step = 0

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        for (x,) in self.loader:
            loss = nn.functional.mse_loss(self.model(x), x)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.step % 5 == 0:
                mean = loss.detach() / dist.get_world_size()
                dist.all_reduce(mean)
                self.logger.log(self.step, epoch=epoch, loss=round(mean.item(), 5))
        if dist.get_rank() == 0:
            print(f"epoch {epoch} step {self.step} loss {mean.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(2)
    trainer = Trainer(TensorDataset(torch.randn(480, 3, generator=g) @ torch.randn(3, 20, generator=g)))
    for epoch in range(3):
        trainer.train_epoch(epoch)
    trainer.logger.close()
    dist.destroy_process_group()
