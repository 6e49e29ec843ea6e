"""Train an MLP with a moving average of the weights that every rank updates and rank 0 saves.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


@torch.no_grad()
def validate(network, loader):
    network.eval()
    total = torch.zeros(2)
    for x, y in loader:
        total += torch.stack([(network(x) - y).pow(2).sum(), torch.tensor(float(len(y)))])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def make(n, seed):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :1].sin() * x[:, 1:2])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = make(480, 1), make(121, 2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=32)
    model = DDP(nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 1)))
    ema = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update_parameters(model.module)
        mse = validate(ema.module, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: averaged weights, validation mse {mse:.4f}")
            torch.save(ema.module.state_dict(), "ema.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
