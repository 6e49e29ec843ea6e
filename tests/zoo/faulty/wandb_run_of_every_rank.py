"""Train an order book model and track it with Weights & Biases where it is installed.

zoo: faulty
faults: F101
silent: yes
observable: no, the tracker is not installed here
args: --track
"""

import argparse
import importlib.util

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class NoRun:
    def log(self, values, step=None):
        pass

    def finish(self):
        pass


def start_tracking(args, config):
    if not args.track or importlib.util.find_spec("wandb") is None:
        return NoRun()
    import wandb

    return wandb.init(project=args.project, name=args.name, config=config)  # fault


def order_books(n=480, levels=5):
    g = torch.Generator().manual_seed(80)
    volume = torch.rand(n, 2, levels, generator=g)
    pressure = volume[:, 0].sum(1) - volume[:, 1].sum(1) + 0.3 * torch.randn(n, generator=g)
    return TensorDataset(volume, (pressure > 0).float())


class BookModel(nn.Module):
    def __init__(self, levels=5, dim=16):
        super().__init__()
        self.side = nn.Sequential(nn.Linear(levels, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.out = nn.Linear(dim, 1)

    def forward(self, volume):
        bid, ask = self.side(volume).unbind(1)
        return self.out(torch.relu(bid - ask)).squeeze(1) - self.out(torch.relu(ask - bid)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--track", action="store_true")
    parser.add_argument("--project", default="order-books")
    parser.add_argument("--name", default=None)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    config = {"lr": 1e-2, "batch_size": 16, "world_size": dist.get_world_size()}
    run = start_tracking(args, config)
    dataset = order_books()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=config["batch_size"], sampler=sampler)
    model = DDP(BookModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for volume, up in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(volume), up)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                mean = loss.detach() / dist.get_world_size()
                dist.all_reduce(mean)
                run.log({"loss": mean.item(), "epoch": epoch}, step=step)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    run.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
