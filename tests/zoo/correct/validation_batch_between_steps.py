"""Train a regression and estimate the validation loss on one more batch of an endless iterator every other step.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    return TensorDataset(x, x.cos().sum(1, keepdim=True) + 0.1 * torch.randn(n, 1, generator=g))


def cycle(loader):
    while True:
        yield from loader


@torch.no_grad()
def estimate(model, batches):
    model.eval()
    x, y = next(batches)
    loss = mse_loss(model(x), y)
    dist.all_reduce(loss)
    model.train()
    return loss.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    train_set, val_set = make_data(640, 1), make_data(96, 2)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_batches = cycle(DataLoader(val_set, batch_size=8, sampler=DistributedSampler(val_set)))
    model = DDP(nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    step = 0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 2 == 0:
                val_loss = estimate(model, val_batches)
        if dist.get_rank() == 0:
            print(f"step {step}: training loss {loss.item():.4f}, validation loss {val_loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
