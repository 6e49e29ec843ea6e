"""Train with ReduceLROnPlateau and early stopping, both on the validation loss of all ranks.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def noisy(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=g)
    return TensorDataset(x, x.sum(1, keepdim=True).sin() + 0.5 * torch.randn(n, 1, generator=g))


@torch.no_grad()
def validation_loss(model, loader):
    model.eval()
    stats = torch.zeros(2, dtype=torch.float64)
    for x, y in loader:
        stats += torch.tensor([nn.functional.mse_loss(model(x), y, reduction="sum").item(), y.numel()])
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def main(max_epochs=12, patience=4):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = noisy(256, 3), noisy(61, 4)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=16)
    model = DDP(nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    best, waited = float("inf"), 0
    for epoch in range(max_epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val = validation_loss(model, val_loader)
        scheduler.step(val)
        if rank == 0:
            print(f"epoch {epoch}: val mse {val:.4f} lr {optimizer.param_groups[0]['lr']:.4f}")
        best, waited = (val, 0) if val < best - 1e-4 else (best, waited + 1)
        if waited == patience:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
