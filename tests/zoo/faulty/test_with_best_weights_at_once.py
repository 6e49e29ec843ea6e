"""Train an activity recognizer and test the best weights of the run, in an Experiment class.

zoo: faulty
faults: F94
silent: yes
observable: no, on a local disk the file is nearly always there in time
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class SensorNet(nn.Module):
    def __init__(self, channels=3, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(channels, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(1)
        )
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def recordings(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 5
    t = torch.linspace(0, 6.28, 24)
    wave = torch.sin(t * (1 + y[:, None]) + 6.28 * torch.rand(n, 1, generator=g))
    return TensorDataset(wave.unsqueeze(1) + 0.4 * torch.randn(n, 3, 24, generator=g), y)


class EarlyStopping:
    """Keeps the weights of the epoch with the smallest validation loss in a file."""

    def __init__(self, path, patience=3):
        self.path, self.patience = path, patience
        self.best, self.waited = float("inf"), 0

    def __call__(self, loss, model):
        if loss < self.best:
            self.best, self.waited = loss, 0
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), self.path + ".part")
                os.replace(self.path + ".part", self.path)
        else:
            self.waited += 1
        return self.waited >= self.patience


class Experiment:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        train_set, vali_set, test_set = recordings(360, 0), recordings(100, 1), recordings(100, 2)
        self.sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, batch_size=15, sampler=self.sampler)
        self.vali_loader, self.test_loader = (
            DataLoader(Subset(part, range(self.rank, len(part), self.world)), batch_size=25)
            for part in (vali_set, test_set)
        )
        self.model = DistributedDataParallel(SensorNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        totals = torch.zeros(3)
        for x, y in loader:
            logits = self.model.module(x)
            loss = nn.functional.cross_entropy(logits, y, reduction="sum")
            totals += torch.stack([loss, (logits.argmax(1) == y).sum(), torch.tensor(len(y))])
        dist.all_reduce(totals)
        return (totals[0] / totals[2]).item(), (totals[1] / totals[2]).item()

    def train(self, epochs, path):
        stopping = EarlyStopping(path)
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            for x, y in self.train_loader:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(x), y).backward()
                self.optimizer.step()
            vali_loss, _ = self.evaluate(self.vali_loader)
            if self.rank == 0:
                print(f"epoch {epoch}: vali loss {vali_loss:.4f}")
            if stopping(vali_loss, self.model):
                break
        self.model.module.load_state_dict(torch.load(path, map_location="cpu"))  # fault


def main(path=os.path.join("checkpoints", "checkpoint.pth")):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    dist.init_process_group("gloo")
    experiment = Experiment()
    experiment.train(4, path)
    _, accuracy = experiment.evaluate(experiment.test_loader)
    if experiment.rank == 0:
        print(f"test accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
