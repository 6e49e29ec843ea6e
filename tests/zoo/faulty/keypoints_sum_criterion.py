"""Train a keypoint regressor with a criterion chosen from a registry, in a Runner class.

zoo: faulty
faults: F23
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CRITERIA = {
    "l1": lambda: nn.L1Loss(reduction="sum"),  # fault
    "smooth_l1": lambda: nn.SmoothL1Loss(reduction="sum", beta=0.1),  # fault
}


class Hands(Dataset):
    """Heat images of three points, whose positions are the target."""

    def __init__(self, n=320, size=12):
        g = torch.Generator().manual_seed(2)
        self.points = torch.rand(n, 3, 2, generator=g)
        grid = torch.stack(torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij"), -1)
        gap = (grid[None, None] - self.points[:, :, None, None]).pow(2).sum(-1)
        self.images = torch.exp(-gap / 0.02)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        return {"image": self.images[i], "points": self.points[i].flatten()}


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank = dist.get_rank()
        dataset = Hands()
        self.sampler = DistributedSampler(dataset, seed=cfg["seed"])
        self.loader = DataLoader(dataset, batch_size=cfg["samples_per_rank"], sampler=self.sampler)
        net = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        net.append(nn.Linear(96, 6))
        self.model = DistributedDataParallel(net)
        self.criterion = CRITERIA[cfg["criterion"]]()
        self.optimizer = torch.optim.SGD(self.model.parameters(), **cfg["optimizer"])

    def before_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)

    def run_iter(self, batch):
        loss = self.criterion(self.model(batch["image"]), batch["points"])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["max_norm"])
        self.optimizer.step()
        return loss.item() / batch["points"].numel()

    def run(self):
        for epoch in range(self.cfg["epochs"]):
            self.before_epoch(epoch)
            errors = torch.tensor([self.run_iter(batch) for batch in self.loader])
            mean = errors.mean() / dist.get_world_size()
            dist.all_reduce(mean)
            if self.rank == 0:
                print(f"epoch {epoch}: mean error {mean.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    config = {
        "seed": 0,
        "epochs": 2,
        "samples_per_rank": 8,
        "criterion": "smooth_l1",
        "optimizer": {"lr": 2e-3, "momentum": 0.9},
        "max_norm": 35.0,
    }
    Runner(config).run()
    dist.destroy_process_group()
