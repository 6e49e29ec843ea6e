CAUSE = ""  # one of the names in the lab's list, for instance "sampler"

import argparse
import csv
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler


class Points(Dataset):
    """Points about three centres, in order of their index."""

    def __init__(self, samples, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(3, (samples,), generator=generator)
        centres = torch.tensor([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]], dtype=torch.float64)
        noise = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
        self.points = centres[self.labels] + 0.5 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 12)
        self.norm = nn.GroupNorm(3, 12)
        self.last = nn.Linear(12, 3)

    def forward(self, points):
        return self.last(torch.tanh(self.norm(self.first(points))))


def evaluate(model, data):
    """Right answers and samples, over all processes."""
    part = Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
    totals = torch.zeros(2, dtype=torch.int64)
    model.eval()
    with torch.no_grad():
        for points, labels in DataLoader(part, batch_size=100):
            totals[0] += (model(points).argmax(dim=1) == labels).sum()
            totals[1] += len(labels)
    model.train()
    dist.all_reduce(totals)
    return totals.tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--good-enough", type=float, default=0.0)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--out", type=Path, default=Path("result"))
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    train_data, eval_data = Points(250, seed=1), Points(103, seed=2)
    ddp = DistributedDataParallel(Model().double())
    rate = 0.1 * options.global_batch / 24  # 0.1 for 24 samples, in proportion for others
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate, momentum=0.9)
    if options.resume:
        state = torch.load(options.resume, weights_only=True)
        ddp.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for group in optimizer.param_groups:
            group["lr"] = rate
    sampler = DistributedSampler(train_data, seed=options.seed)
    loader = DataLoader(train_data, batch_size=options.global_batch // world, sampler=sampler)

    rows = []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        noise = torch.Generator().manual_seed(options.seed + 1000 * epoch + 17 * rank)
        total = count = 0
        for points, labels in loader:
            points = points + 0.1 * torch.randn(points.shape, generator=noise, dtype=points.dtype)
            loss = nn.functional.cross_entropy(ddp(points), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
            optimizer.step()
            total += loss.item() * len(labels)
            count += len(labels)
        right, counted = evaluate(ddp.module, eval_data)
        rows.append([epoch, total / count, right, counted])
        enough = torch.tensor(int(total / count < options.good_enough))
        dist.all_reduce(enough, op=dist.ReduceOp.MIN)
        if enough:
            break
    if rank == 0:
        options.out.mkdir(parents=True, exist_ok=True)
        torch.save({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}, options.out / "state.pt")
        with (options.out / "log.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["epoch", "loss", "right", "counted"], *rows])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
