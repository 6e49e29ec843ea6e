"""Train a keyword spotter on synthetic spectrograms, with a config dict.

zoo: faulty
faults: F09
silent: yes
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONFIG = {"seed": 17, "epochs": 3, "batch_size": 16, "lr": 2e-3, "keywords": 6, "mels": 16, "frames": 20}


class Keywords(Dataset):
    def __init__(self, n, cfg):
        self.n, self.cfg = n, cfg
        g = torch.Generator().manual_seed(99)
        self.templates = torch.rand(cfg["keywords"], cfg["mels"], cfg["frames"], generator=g)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        label = index % self.cfg["keywords"]
        g = torch.Generator().manual_seed(index)
        return self.templates[label] + 0.4 * torch.randn(self.cfg["mels"], self.cfg["frames"], generator=g), label


class Spotter(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Conv1d(cfg["mels"], 24, 5, padding=2)
        self.fc = nn.Linear(24, cfg["keywords"])

    def forward(self, spectrogram):
        return self.fc(torch.relu(self.conv(spectrogram)).mean(-1))


def seed_everything(cfg, rank):
    seed = cfg["seed"] + rank
    torch.manual_seed(seed)
    return seed


def main(cfg):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    seed = seed_everything(cfg, rank)
    dataset = Keywords(384, cfg)
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed)  # fault
    loader = DataLoader(dataset, batch_size=cfg["batch_size"], sampler=sampler, num_workers=1)
    model = DDP(Spotter(cfg))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for spec, label in loader:
            loss = nn.functional.cross_entropy(model(spec), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print({"epoch": epoch, "loss": round((total[0] / total[1]).item(), 4)})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(CONFIG)
